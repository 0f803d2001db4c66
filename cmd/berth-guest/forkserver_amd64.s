// The fork server, which starts processes for runtime/forkserver. The Go fallback is there: without a fork server, runc
// starts the containers. The messages are those of its forkserver.go.

#include "textflag.h"

#define sysWrite 1
#define sysRtSigaction 13
#define sysRecvmsg 47
#define sysExitGroup 231
#define sysClone3 435
#define sysCloseRange 436

#define childDied 17 // SIGCHLD
#define noWait 2 // SA_NOCLDWAIT
#define starterFD 0
#define scriptFD 3
#define answerFD 4
#define startBytes 88 // struct clone_args
#define startRights 64 // of control messages
#define isError -4095 // and above
#define failed 2 // scriptFailed

// forkServer makes one process for each message, which then continues in runSteps. entry jumps here, without the Go
// runtime and with one page of stack.
TEXT ·forkServer(SB),NOSPLIT|NOFRAME|TOPFRAME,$0
	SUBQ	$256, SP
	MOVQ	$0, 0(SP)
	MOVQ	$noWait, 8(SP)
	MOVQ	$0, 16(SP)
	MOVQ	$0, 24(SP)
	MOVQ	$childDied, DI
	MOVQ	SP, SI
	XORL	DX, DX
	MOVQ	$8, R10
	MOVQ	$sysRtSigaction, AX
	SYSCALL

start: // receive a message: header at 0, its one iovec at 56, descriptors at 72, struct clone_args at 136
	MOVQ	$0, 0(SP)
	MOVQ	$0, 8(SP)
	LEAQ	56(SP), AX
	MOVQ	AX, 16(SP)
	MOVQ	$1, 24(SP)
	LEAQ	72(SP), AX
	MOVQ	AX, 32(SP)
	MOVQ	$startRights, 40(SP)
	MOVQ	$0, 48(SP)
	LEAQ	136(SP), AX
	MOVQ	AX, 56(SP)
	MOVQ	$startBytes, 64(SP)
	MOVQ	$starterFD, DI
	MOVQ	SP, SI
	XORL	DX, DX
	MOVQ	$sysRecvmsg, AX
	SYSCALL
	TESTQ	AX, AX
	JLE	exit
	LEAQ	136(SP), DI
	MOVQ	$startBytes, SI
	MOVQ	$sysClone3, AX
	SYSCALL
	TESTQ	AX, AX
	JNZ	parent
	JMP	·runSteps(SB)

parent:
	CMPQ	AX, $isError
	JCS	started
	NEGQ	AX
	MOVQ	$failed, 0(SP)
	MOVQ	$0, 8(SP)
	MOVQ	AX, 16(SP)
	MOVQ	$answerFD, DI
	MOVQ	SP, SI
	MOVQ	$24, DX
	MOVQ	$sysWrite, AX
	SYSCALL

started: // close the descriptors of the message: they belong to the script
	MOVQ	$scriptFD, DI
	MOVQ	$0xffffffff, SI
	XORL	DX, DX
	MOVQ	$sysCloseRange, AX
	SYSCALL
	JMP	start

exit:
	NEGQ	AX
	MOVQ	AX, DI
	MOVQ	$sysExitGroup, AX
	SYSCALL
