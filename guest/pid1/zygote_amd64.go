package pid1

import "unsafe"

// zygotesWork is whether this machine's architecture has code for zygotes.
const zygotesWork = true

// zygoteText is where the code is in this program.
func zygoteText() unsafe.Pointer
