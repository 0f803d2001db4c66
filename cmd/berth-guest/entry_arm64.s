// The program's entry. The Go fallback is main, for a program that was linked without -E main.entry: it executes a
// dozing guest again at once, and makes no user namespace, so that runc makes it.

#include "textflag.h"

// The same numbers as in entry_amd64.s.
#define awaited 1
#define hungUpBit 4
#define interrupted -4

#define sysRead 63
#define sysWrite 64
#define sysPpoll 73
#define sysExitGroup 94
#define sysUnshare 97
#define sysSetresuid 147
#define sysPrctl 167
#define sysExecve 221

#define newUser 0x10000000
#define setSecurebits 28
#define noFixup 4

TEXT ·entry(SB),NOSPLIT|NOFRAME|TOPFRAME,$0
	MOVD	8(RSP), R0
	CBZ	R0, run
	MOVWU	(R0), R1
	MOVD	$0x72657375, R2 // "user"
	CMP	R2, R1
	BEQ	user
	MOVD	$0x657a6f64, R2 // "doze"
	CMP	R2, R1
	BNE	run
	MOVBU	4(R0), R1
	CBNZ	R1, run

	MOVD	(RSP), R19
	ADD	$8, RSP, R20 // arguments
	ADD	R19<<3, R20, R21
	ADD	$8, R21, R21 // environment
	SUB	$48, RSP
	MOVD	$awaited, R2
	MOVD	$100, R1 // listenerFD
	MOVW	R1, 0(RSP)
	MOVW	R2, 4(RSP)
	MOVD	$101, R1 // connFD
	MOVW	R1, 8(RSP)
	MOVW	R2, 12(RSP)

wait:
	MOVD	RSP, R0
	MOVD	$2, R1
	MOVD	$0, R2
	MOVD	$0, R3
	MOVD	$0, R4
	MOVD	$sysPpoll, R8
	SVC
	CMP	$interrupted, R0
	BEQ	wait
	MOVHU	6(RSP), R1
	CBNZ	R1, wake
	MOVHU	14(RSP), R1
	TBZ	$hungUpBit, R1, wake
	MOVD	$-1, R1
	MOVW	R1, 8(RSP)
	B	wait

wake:
	MOVD	8(R20), R0
	ADD	$8, R20, R1
	MOVD	R21, R2
	MOVD	$sysExecve, R8
	SVC

	MOVD	$1, R1 // one second; ppoll may modify it
	MOVD	R1, 16(RSP)
	MOVD	$0, R1
	MOVD	R1, 24(RSP)
	MOVD	$0, R0
	ADD	$16, RSP, R2
	MOVD	$0, R3
	MOVD	$0, R4
	MOVD	$sysPpoll, R8
	SVC
	B	wake

user:
	MOVWU	3(R0), R1
	MOVD	$0x00736e72, R2 // "rns"
	CMP	R2, R1
	BNE	run
	SUB	$16, RSP
	MOVD	$0, R0
	MOVD	RSP, R1
	MOVD	$4, R2
	MOVD	$sysRead, R8
	SVC
	CMP	$4, R0
	BNE	exit
	MOVD	$setSecurebits, R0
	MOVD	$noFixup, R1
	MOVD	$sysPrctl, R8
	SVC
	MOVD	$-1, R0
	MOVWU	(RSP), R1
	MOVD	$-1, R2
	MOVD	$sysSetresuid, R8
	SVC
	CBNZ	R0, exit
	MOVD	$newUser, R0
	MOVD	$sysUnshare, R8
	SVC
	CBNZ	R0, exit
	MOVD	$1, R0
	MOVD	RSP, R1
	MOVD	$1, R2
	MOVD	$sysWrite, R8
	SVC
	MOVD	$0, R0
	MOVD	RSP, R1
	MOVD	$1, R2
	MOVD	$sysRead, R8
	SVC

exit:
	NEG	R0, R0
	MOVD	$sysExitGroup, R8
	SVC

run:
	B	_rt0_arm64_linux(SB)
