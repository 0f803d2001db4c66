// Package files keeps stored files: bytes with an ID, an owner and an optional expiry. A Files API serves them.
// Results of containers are published as stored files, and inputs of containers come from them.
//
// On disk, below Config.Dir:
//
//	tmp/upload-*     uploads on their way in; Open removes whatever is here
//	blobs/<sha-256>  contents, each once, named by nothing but their hash
//
// Names, IDs and owners are records in the ledger and never part of a path:
//
//	files/       <file id>              record
//	file_owners/ <owner> 0 <file id>    its scope; file IDs sort by time, so this is the order of lists
//	file_due/    <time> 0 <file id>     when Sweep has to look at it next
//	blobs/       <sha-256>              count of records that need this content
//
// The order of steps makes a crash harmless at any point. Put writes the content first, then the record, so a record
// never lacks its content. Delete removes the record first, then the content. A crash in between leaves content that
// no record counts; Open and Sweep remove it. Steps on one content exclude each other (a lock by hash), so a delete
// never removes a content that a put relies on.
package files
