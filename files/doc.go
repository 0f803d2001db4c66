// Package files keeps stored files: bytes with an ID, an owner and, if asked for, an end. It is
// what a Files API serves, where results of containers are published, and where their inputs
// come from.
//
// On disk, below Config.Dir:
//
//	tmp/upload-*     uploads on their way in; whatever is here at Open is removed
//	blobs/<sha-256>  contents, each once, named by nothing but their hash
//
// Names, IDs and owners are records in the ledger and never part of a path:
//
//	files/       <file id>              record
//	file_owners/ <owner> 0 <file id>    its scope; file IDs sort by time, so this is the order of lists
//	file_due/    <time> 0 <file id>     when Sweep has to look at it next
//	blobs/       <sha-256>              count of records that need this content
//
// The order of steps makes a crash harmless at any point. Coming in: content first, then the
// record, so a record never lacks its content. Going out: record first, then the content. What a crash
// leaves in between is content that no record counts; Open and Sweep remove it. Steps on
// one content exclude each other (claims), so that a delete never takes what a put relies on.
package files
