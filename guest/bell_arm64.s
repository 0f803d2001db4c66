#include "textflag.h"

#define sysWrite 64
#define sysSigreturn 139

// bellHandler is what the kernel calls when a child has died, on whichever thread: it counts one more in the bell. It has nothing of Go's.
TEXT bellHandler<>(SB),NOSPLIT|NOFRAME,$0
	MOVW	·bellFD(SB), R0
	MOVD	$·bellCount(SB), R1
	MOVD	$8, R2
	MOVD	$sysWrite, R8
	SVC
	RET

// bellReturn is where the handler returns to.
TEXT bellReturn<>(SB),NOSPLIT|NOFRAME,$0
	MOVD	$sysSigreturn, R8
	SVC
	BRK

// func bellText() (handler, restorer uintptr)
TEXT ·bellText(SB),NOSPLIT,$0-16
	MOVD	$bellHandler<>(SB), R0
	MOVD	R0, handler+0(FP)
	MOVD	$bellReturn<>(SB), R0
	MOVD	R0, restorer+8(FP)
	RET
