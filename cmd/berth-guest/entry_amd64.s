#include "textflag.h"

// Of a pollfd: 4 bytes of descriptor, 2 of what is awaited, 2 of what came.
#define awaited 1 // POLLIN
#define hungUp 0x10 // POLLHUP
#define interrupted -4 // EINTR

#define sysRead 0
#define sysWrite 1
#define sysPoll 7
#define sysMmap 9
#define sysExecve 59
#define sysSetresuid 117
#define sysPrctl 157
#define sysExitGroup 231
#define sysUnshare 272

#define newUser 0x10000000 // CLONE_NEWUSER
#define setSecurebits 28 // PR_SET_SECUREBITS
#define noFixup 4 // SECBIT_NO_SETUID_FIXUP

// Of a script: see script.go in session/containerd.
#define scriptAt 0x10000000
#define scriptSize 0x100000
#define readWrite 3 // PROT_READ, PROT_WRITE
#define privateThere 0x100002 // MAP_PRIVATE, MAP_FIXED_NOREPLACE
#define scriptFD 3
#define answerFD 4
#define isError -4095 // and above
#define failed 3 // scriptFailed
#define fails 0xff // stepFails

// entry is where the kernel begins the program. It is the runtime's own beginning, unless the program is called something that it does without
// that, with nothing but a page of its stack: guest.DozeName, "doze", see doze.go; "userns", see userns.go; or "script", see script.go.
TEXT ·entry(SB),NOSPLIT|NOFRAME|TOPFRAME,$0
	MOVQ	8(SP), SI
	TESTQ	SI, SI
	JZ	run
	CMPL	(SI), $0x72657375 // "user"
	JEQ	user
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

script:
	CMPL	3(SI), $0x00747069 // "ipt"
	JNE	run
	MOVQ	$scriptAt, DI
	MOVQ	$scriptSize, SI
	MOVQ	$readWrite, DX
	MOVQ	$privateThere, R10
	MOVQ	$scriptFD, R8
	XORL	R9, R9
	MOVQ	$sysMmap, AX
	SYSCALL
	CMPQ	AX, $isError
	JCC	exit
	MOVQ	AX, R14

step: // of which R14 is the address
	MOVQ	0(R14), AX
	MOVQ	8(R14), DI
	MOVQ	16(R14), SI
	MOVQ	24(R14), DX
	MOVQ	32(R14), R10
	MOVQ	40(R14), R8
	MOVQ	48(R14), R9
	SYSCALL
	CMPQ	AX, $isError
	JCC	refused
	MOVQ	56(R14), DI
	TESTQ	DI, DI
	JZ	stored
	MOVQ	AX, (DI)

stored:
	MOVBQZX	64(R14), CX // how many steps are left out
	TESTQ	AX, AX
	JNZ	onward
	MOVBQZX	65(R14), CX // the same where the call returned 0
	CMPL	CX, $fails
	JEQ	broken

onward:
	INCQ	CX
	IMULQ	$80, CX
	ADDQ	CX, R14
	JMP	step

refused:
	NEGQ	AX
	MOVBQZX	64(R14), CX
	MOVWQZX	66(R14), DX // an error that is as good as none
	CMPQ	AX, DX
	JEQ	onward
	XORL	CX, CX
	MOVWQZX	68(R14), DX // an error for which there are the steps that are left out otherwise
	CMPQ	AX, DX
	JEQ	onward

broken:
	SUBQ	$24, SP
	MOVQ	$failed, 0(SP)
	MOVQ	R14, 8(SP)
	MOVQ	AX, 16(SP)
	MOVQ	$answerFD, DI
	MOVQ	SP, SI
	MOVQ	$24, DX
	MOVQ	$sysWrite, AX
	SYSCALL
	MOVQ	$-1, AX
	JMP	exit

run:
	JMP	_rt0_amd64_linux(SB)
