package zygote

import "unsafe"

// Works reports whether there is zygote code for this architecture.
const Works = true

// codeAddress returns the address of the code in this program.
func codeAddress() unsafe.Pointer
