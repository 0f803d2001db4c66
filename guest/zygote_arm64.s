#include "textflag.h"

// The same as zygote_amd64.s. R19: the data. R20: the message. R21: the call. R22: whether this is a child.
#define sysExitGroup 94
#define sysSendto 206
#define sysRecvmsg 212
#define sysClone 220
#define sysCloseRange 436

#define noSignal 0x4000

TEXT zygoteCode<>(SB),NOSPLIT|NOFRAME,$0
	ADR	begin, R9
begin:
	SUB	$64, RSP
	STP	(R19, R20), 0(RSP)
	STP	(R21, R22), 16(RSP)
	STP	(R29, R30), 32(RSP)
	MOVD	$(0xf000-4), R10
	ADD	R10, R9, R19 // begin is one instruction behind the code's
	ADD	$0x240, R19, R0
	MOVD	R0, 0x210(R19)
	ADD	$0x1000, R19, R20
	MOVD	R20, 0x240(R19)
	ADD	$0x280, R19, R0
	MOVD	R0, 0x220(R19)
	MOVD	ZR, R22
	MOVD	R19, R0

say:
	MOVD	R0, 0x400(R19)
	MOVD	$3, R0
	ADD	$0x400, R19, R1
	MOVD	$8, R2
	MOVD	$noSignal, R3
	MOVD	ZR, R4
	MOVD	ZR, R5
	MOVD	$sysSendto, R8
	SVC
	CBNZ	R22, exit

done:
	MOVD	$4, R0
	MOVD	$0xffffffff, R1
	MOVD	ZR, R2
	MOVD	$sysCloseRange, R8
	SVC

	MOVD	$64, R0
	MOVD	R0, 0x228(R19)
	MOVD	$3, R0
	ADD	$0x200, R19, R1
	MOVD	ZR, R2
	MOVD	$sysRecvmsg, R8
	SVC
	CMP	$0, R0
	BLE	exit
	MOVD	0(R20), R0
	CBZ	R0, run
	MOVD	ZR, R1
	MOVD	ZR, R2
	MOVD	ZR, R3
	MOVD	8(R20), R4
	MOVD	$sysClone, R8
	SVC
	CMP	$0, R0
	BLT	say
	BNE	done
	MOVD	$1, R22

run:
	ADD	$16, R20, R21

next:
	MOVD	0(R21), R8
	MOVD	8(R21), R0
	MOVD	16(R21), R1
	MOVD	24(R21), R2
	CMN	$1, R8
	BEQ	end
	CMN	$2, R8
	BEQ	copy
	CMN	$3, R8
	BEQ	done
	CMN	$4, R8
	BEQ	function
	MOVD	32(R21), R3
	MOVD	40(R21), R4
	MOVD	48(R21), R5
	SVC
	CMN	$4095, R0
	BHS	say
	MOVD	56(R21), R1
	CBZ	R1, advance
	MOVD	R0, (R1)

advance:
	ADD	$64, R21
	B	next

copy:
	CBZ	R2, advance
	MOVBU.P	1(R1), R3
	MOVB.P	R3, 1(R0)
	SUB	$1, R2
	B	copy

function:
	MOVD	(R0), R9
	CBZ	R9, advance
	MOVD	R1, R0
	MOVD	R2, R1
	MOVD	32(R21), R2
	CALL	(R9)
	B	advance

end:
	CBZ	R22, done
	LDP	0(RSP), (R19, R20)
	LDP	16(RSP), (R21, R22)
	LDP	32(RSP), (R29, R30)
	ADD	$64, RSP
	RET

exit:
	MOVD	$127, R0
	MOVD	$sysExitGroup, R8
	SVC
	BRK

	WORD	$0x74726562
	WORD	$0x646e6521
	RET

// func zygoteText() unsafe.Pointer
TEXT ·zygoteText(SB),NOSPLIT,$0-8
	MOVD	$zygoteCode<>(SB), R0
	MOVD	R0, ret+0(FP)
	RET
