//go:build !amd64

package attack

// forbiddenHere are the forbidden calls that only this architecture has.
var forbiddenHere []numbered

// int80 is nil: there is no such entry point.
var int80 func(number, a, b, c uintptr) uintptr
