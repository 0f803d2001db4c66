// Package audit is the log of who did what to which container: hash-chained, append-only, in files that anybody can
// check.
//
// The log is a row of segments in one directory: audit-000001.log, audit-000002.log, … and the newest, audit.log.
// Each line is a JSON object in ASCII, a proto.AuditEntry, that ends in
//
//	,"hash":"<64 hex digits>"}
//
// and a line feed. The hash is the SHA-256 of the line's bytes before that; the next entry repeats it as "prev", and
// so on across segments. Nothing has to be re-encoded to check it.
//
// An entry is written before Append returns, so that a daemon that is killed loses none of them, and is on disk
// within SyncEvery, after which the head of the chain is put into the ledger: who cuts the end off the log leaves a
// ledger that knows better. Where an entry cannot be written it waits in memory, Ready says so, and a goroutine tries
// again.
package audit
