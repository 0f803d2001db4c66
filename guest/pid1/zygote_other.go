//go:build !amd64

package guest

import "unsafe"

// zygotesWork is whether this machine's architecture has code for zygotes. On others each command executes its program.
const zygotesWork = false

func zygoteText() unsafe.Pointer { return nil }
