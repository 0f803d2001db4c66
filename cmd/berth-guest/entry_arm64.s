// The program's entry. The Go fallback is main, for a program that was linked without -E main.entry: it makes no user
// namespace, so that runc makes it.

#include "textflag.h"

#define sysRead 63
#define sysWrite 64
#define sysExitGroup 94
#define sysUnshare 97
#define sysSetresuid 147
#define sysPrctl 167

#define newUser 0x10000000
#define setSecurebits 28
#define noFixup 4

TEXT ·entry(SB),NOSPLIT|NOFRAME|TOPFRAME,$0
	MOVD	8(RSP), R0
	CBZ	R0, run
	MOVWU	(R0), R1
	MOVD	$0x72657375, R2 // "user"
	CMP	R2, R1
	BNE	run
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
