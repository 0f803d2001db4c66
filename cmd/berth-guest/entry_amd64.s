#include "textflag.h"

// Of a pollfd: 4 bytes of descriptor, 2 of what is awaited, 2 of what came.
#define awaited 1 // POLLIN
#define hungUp 0x10 // POLLHUP
#define interrupted -4 // EINTR

#define sysRead 0
#define sysWrite 1
#define sysPoll 7
#define sysExecve 59
#define sysSetresuid 117
#define sysPrctl 157
#define sysExitGroup 231
#define sysUnshare 272

#define newUser 0x10000000 // CLONE_NEWUSER
#define setSecurebits 28 // PR_SET_SECUREBITS
#define noFixup 4 // SECBIT_NO_SETUID_FIXUP

// entry is where the kernel begins the program. It is the runtime's own beginning, unless the program is called something that it does without
// that, with nothing but a page of its stack: guest.DozeName, "doze", see doze.go; or "userns", see userns.go.
TEXT ·entry(SB),NOSPLIT|NOFRAME|TOPFRAME,$0
	MOVQ	8(SP), SI
	TESTQ	SI, SI
	JZ	run
	CMPL	(SI), $0x72657375 // "user"
	JEQ	user
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

user:
	CMPL	3(SI), $0x00736e72 // "rns"
	JNE	run
	SUBQ	$16, SP
	MOVQ	$0, DI
	MOVQ	SP, SI
	MOVQ	$4, DX
	MOVQ	$sysRead, AX
	SYSCALL
	CMPQ	AX, $4
	JNE	exit
	MOVQ	$setSecurebits, DI
	MOVQ	$noFixup, SI
	MOVQ	$sysPrctl, AX
	SYSCALL
	MOVQ	$-1, DI
	MOVL	(SP), SI
	MOVQ	$-1, DX
	MOVQ	$sysSetresuid, AX
	SYSCALL
	TESTQ	AX, AX
	JNZ	exit
	MOVQ	$newUser, DI
	MOVQ	$sysUnshare, AX
	SYSCALL
	TESTQ	AX, AX
	JNZ	exit
	MOVQ	$1, DI
	MOVQ	SP, SI
	MOVQ	$1, DX
	MOVQ	$sysWrite, AX
	SYSCALL
	MOVQ	$0, DI
	MOVQ	SP, SI
	MOVQ	$1, DX
	MOVQ	$sysRead, AX
	SYSCALL

exit:
	NEGQ	AX
	MOVQ	AX, DI
	MOVQ	$sysExitGroup, AX
	SYSCALL

run:
	JMP	_rt0_amd64_linux(SB)
