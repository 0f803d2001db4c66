#include "textflag.h"

#define sysWrite 1
#define sysSigreturn 15

// bellHandler is what the kernel calls when a child has died, on whichever thread: it counts one more in the bell. It has nothing of Go's.
TEXT bellHandler<>(SB),NOSPLIT|NOFRAME,$0
	MOVL	·bellFD(SB), DI
	LEAQ	·bellCount(SB), SI
	MOVQ	$8, DX
	MOVQ	$sysWrite, AX
	SYSCALL
	RET

// bellReturn is where the handler returns to.
TEXT bellReturn<>(SB),NOSPLIT|NOFRAME,$0
	MOVQ	$sysSigreturn, AX
	SYSCALL
	INT	$3

// func bellText() (handler, restorer uintptr)
TEXT ·bellText(SB),NOSPLIT,$0-16
	LEAQ	bellHandler<>(SB), AX
	MOVQ	AX, handler+0(FP)
	LEAQ	bellReturn<>(SB), AX
	MOVQ	AX, restorer+8(FP)
	RET
