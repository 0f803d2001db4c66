package pid1

import "unsafe"

// zygotesWork reports whether there is zygote code for this architecture.
const zygotesWork = true

// zygoteText returns the address of the code in this program.
func zygoteText() unsafe.Pointer
