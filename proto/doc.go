// Package proto holds the words that every other package speaks: wire types,
// events, IDs and error codes.
//
// It imports the standard library only, does no I/O and keeps no state. A type
// belongs here when two packages that may not import each other both need it.
package proto
