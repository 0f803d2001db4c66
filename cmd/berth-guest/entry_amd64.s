// The program's entry. The Go fallback is main, for a program that was linked without -E main.entry: it executes a
// dozing guest again at once, and is no fork server.

#include "textflag.h"

// A pollfd has 4 bytes of descriptor, 2 of requested events, 2 of returned events.
#define awaited 1 // POLLIN
#define hungUp 0x10 // POLLHUP
#define interrupted -4 // EINTR

#define sysPoll 7
#define sysExecve 59

// entry is where the kernel starts the program. It jumps to the Go runtime's entry, except for two program names
// that it handles without the runtime, with one page of stack: wire.DozeName, "doze" (see doze.go), and "script"
// (see helper_amd64.go).
TEXT ·entry(SB),NOSPLIT|NOFRAME|TOPFRAME,$0
	MOVQ	8(SP), SI
	TESTQ	SI, SI
	JZ	run
	CMPL	(SI), $0x69726373 // "scri"
	JEQ	script
	CMPL	(SI), $0x657a6f64 // "doze"
	JNE	run
	CMPB	4(SI), $0
	JNE	run

	MOVQ	(SP), R12
	LEAQ	8(SP), R13 // arguments
	LEAQ	16(SP)(R12*8), R14 // environment
	SUBQ	$32, SP
	MOVL	$100, 0(SP) // listenerFD
	MOVL	$awaited, 4(SP)
	MOVL	$101, 8(SP) // connFD
	MOVL	$awaited, 12(SP)

wait:
	MOVQ	SP, DI
	MOVQ	$2, SI
	MOVQ	$-1, DX
	MOVQ	$sysPoll, AX
	SYSCALL
	CMPQ	AX, $interrupted
	JEQ	wait
	MOVWLZX	6(SP), AX
	TESTL	AX, AX
	JNZ	wake
	MOVWLZX	14(SP), AX
	TESTL	$hungUp, AX
	JZ	wake
	MOVL	$-1, 8(SP) // this daemon has ended; the next one connects to the listener
	JMP	wait

wake:
	MOVQ	8(R13), DI
	LEAQ	8(R13), SI
	MOVQ	R14, DX
	MOVQ	$sysExecve, AX
	SYSCALL

	// execve failed for lack of memory. Try again in a second.
	MOVQ	$0, DI
	MOVQ	$0, SI
	MOVQ	$1000, DX
	MOVQ	$sysPoll, AX
	SYSCALL
	JMP	wake

script:
	CMPL	3(SI), $0x00747069 // "ipt"
	JNE	run
	JMP	·forkServer(SB)

run:
	JMP	_rt0_amd64_linux(SB)
