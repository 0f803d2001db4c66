//go:build !amd64

package zygote

import "unsafe"

// Works reports whether there is zygote code for this architecture. Without it, the guest executes the program
// of each command.
const Works = false

func codeAddress() unsafe.Pointer { return nil }
