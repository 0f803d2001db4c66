#include "textflag.h"

// Of a pollfd: 4 bytes of descriptor, 2 of what is awaited, 2 of what came.
#define awaited 1 // POLLIN
#define hungUp 0x10 // POLLHUP
#define interrupted -4 // EINTR

#define sysPoll 7
#define sysExecve 59

// entry is where the kernel begins the program; see doze.go. It is the runtime's own beginning, unless the program is called guest.DozeName, "doze". Then it waits without
// that: nothing but a page of its stack is its own.
TEXT ·entry(SB),NOSPLIT|NOFRAME|TOPFRAME,$0
	MOVQ	8(SP), SI
	TESTQ	SI, SI
	JZ	run
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
	MOVL	$-1, 8(SP) // a daemon that has ended wants nothing; the next one comes by the listener
	JMP	wait

wake:
	MOVQ	8(R13), DI
	LEAQ	8(R13), SI
	MOVQ	R14, DX
	MOVQ	$sysExecve, AX
	SYSCALL

	// There was no memory for it. There may be in a second.
	MOVQ	$0, DI
	MOVQ	$0, SI
	MOVQ	$1000, DX
	MOVQ	$sysPoll, AX
	SYSCALL
	JMP	wake

run:
	JMP	_rt0_amd64_linux(SB)
