// Package term prints for people at a terminal: tables, lists, JSON, progress bars and a status line.
//
// It removes control characters from text that a container or another user chose. It also parses sizes and durations
// of flags. Package cli and its commands use it. It depends on no command and no daemon.
package term
