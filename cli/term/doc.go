// Package term prints for people at a terminal: tables, lists, JSON, progress bars and a status line.
//
// Text that a container or another user chose is printed without control characters. Parsing of sizes and durations
// in flags is here too. Package cli and its commands call it; it knows no command and no daemon.
package term
