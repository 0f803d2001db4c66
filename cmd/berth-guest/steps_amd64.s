// The steps of a process that the fork server has made. The Go fallback is in runtime/forkserver: without a fork
// server, runc starts the containers. The layout of a step is that of program.go there.

#include "textflag.h"

#define sysWrite 1
#define sysMmap 9
#define sysExitGroup 231

#define scriptAt 0x10000000
#define scriptSize 0x100000
#define readWrite 3 // PROT_READ, PROT_WRITE
#define privateThere 0x100002 // MAP_PRIVATE, MAP_FIXED_NOREPLACE
#define scriptFD 3
#define answerFD 4
#define isError -4095 // and above
#define failed 2 // scriptFailed
#define fails 0xff // stepFails

// runSteps maps the file with the steps. It makes their system calls in order until one ends the process or executes a
// program. It reports a failure to the daemon.
TEXT ·runSteps(SB),NOSPLIT|NOFRAME|TOPFRAME,$0
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

exit:
	NEGQ	AX
	MOVQ	AX, DI
	MOVQ	$sysExitGroup, AX
	SYSCALL
