#include "textflag.h"

// The same as entry_amd64.s.
#define awaited 1
#define hungUpBit 4
#define interrupted -4

#define sysPpoll 73
#define sysExecve 221

TEXT ·entry(SB),NOSPLIT|NOFRAME|TOPFRAME,$0
	MOVD	8(RSP), R0
	CBZ	R0, run
	MOVWU	(R0), R1
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

	MOVD	$1, R1 // a second, which ppoll may count down
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

run:
	B	_rt0_arm64_linux(SB)
