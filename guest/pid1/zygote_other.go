//go:build !amd64

package pid1

import "unsafe"

// zygotesWork reports whether there is zygote code for this architecture. Without it, the guest executes the program
// of each command.
const zygotesWork = false

func zygoteText() unsafe.Pointer { return nil }
