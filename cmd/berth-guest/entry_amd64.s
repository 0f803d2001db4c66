// The program's entry. The Go fallback is main, for a program that was linked without -E main.entry: it is no fork
// server.

#include "textflag.h"

// entry is where the kernel starts the program. It jumps to the Go runtime's entry, except for a program name that it
// handles without the runtime, with one page of stack: "script" (see helper_amd64.go).
TEXT ·entry(SB),NOSPLIT|NOFRAME|TOPFRAME,$0
	MOVQ	8(SP), SI
	TESTQ	SI, SI
	JZ	run
	CMPL	(SI), $0x69726373 // "scri"
	JNE	run
	CMPL	3(SI), $0x00747069 // "ipt"
	JNE	run
	JMP	·forkServer(SB)

run:
	JMP	_rt0_amd64_linux(SB)
