#include "textflag.h"

// A pollfd has 4 bytes of descriptor, 2 of requested events, 2 of returned events.
#define awaited 1 // POLLIN
#define hungUp 0x10 // POLLHUP
#define interrupted -4 // EINTR

#define sysRead 0
#define sysWrite 1
#define sysPoll 7
#define sysMmap 9
#define sysRtSigaction 13
#define sysRecvmsg 47
#define sysExecve 59
#define sysExitGroup 231
#define sysClone3 435
#define sysCloseRange 436

#define childDied 17 // SIGCHLD
#define noWait 2 // SA_NOCLDWAIT

// Scripts and their starter: see program.go and forkserver.go in runtime/launch.
#define scriptAt 0x10000000
#define scriptSize 0x100000
#define readWrite 3 // PROT_READ, PROT_WRITE
#define privateThere 0x100002 // MAP_PRIVATE, MAP_FIXED_NOREPLACE
#define starterFD 0
#define scriptFD 3
#define answerFD 4
#define startBytes 88 // struct clone_args
#define startRights 64 // of control messages
#define isError -4095 // and above
#define failed 2 // scriptFailed
#define fails 0xff // stepFails

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
	JZ	begin
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

begin:
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

step: // R14 is the step's address
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
	MOVBQZX	64(R14), CX // number of steps to skip
	TESTQ	AX, AX
	JNZ	onward
	MOVBQZX	65(R14), CX // the same if the call returned 0
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
	MOVWQZX	66(R14), DX // an error that counts as success
	CMPQ	AX, DX
	JEQ	onward
	XORL	CX, CX
	MOVWQZX	68(R14), DX // an error after which no step is skipped
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
