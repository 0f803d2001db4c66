// Package audit is the log of actions on containers: hash-chained, append-only, in files that anyone can check.
//
// The log is a sequence of segments in one directory: audit-000001.log, audit-000002.log, … and the newest,
// audit.log. Each line is a JSON object in ASCII, a proto.AuditEntry, that ends in
//
//	,"hash":"<64 hex digits>"}
//
// and a line feed. The hash is the SHA-256 of the line's bytes before that. The next entry repeats it as "prev", also
// across segments. Checking needs no re-encoding.
//
// Append writes an entry before it returns, so a killed daemon loses none. The entry is on disk within SyncEvery.
// Then the head of the chain goes into the ledger, which reveals a log whose end was cut off. An entry that cannot be
// written waits in memory, Ready fails, and a goroutine tries again.
//
// The daemon opens the log; the edges append to it. The package decides nothing about who may do what.
package audit
