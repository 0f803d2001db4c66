// The code that a zygote runs. The Go fallback is proc.Table.Start: without a zygote, and on machines other than amd64,
// each command is forked and executed.

#include "textflag.h"

#define sysSendto 44
#define sysRecvmsg 47
#define sysClone 56
#define sysExitGroup 231
#define sysCloseRange 436

#define noSignal 0x4000 // MSG_NOSIGNAL
#define isError -4095 // results from here on are errors

// zygoteCode is called by the dynamic linker in a zygote. It uses nothing of Go and runs from a copy that
// object.go makes. Its data begins 0xf000 bytes after its start. object.go has the offsets in the data.
//
// R12: the data. R13: the message. R14: the call. R15: 1 in a child, otherwise 0.
TEXT zygoteCode<>(SB),NOSPLIT|NOFRAME,$0
	PUSHQ	BX
	PUSHQ	BP
	PUSHQ	R12
	PUSHQ	R13
	PUSHQ	R14
	PUSHQ	R15
	LEAQ	zygoteCode<>(SB), R12
	ADDQ	$0xf000, R12
	LEAQ	0x240(R12), AX
	MOVQ	AX, 0x210(R12)
	LEAQ	0x1000(R12), R13
	MOVQ	R13, 0x240(R12)
	LEAQ	0x280(R12), AX
	MOVQ	AX, 0x220(R12)
	XORL	R15, R15
	MOVQ	R12, AX
say: // sends AX to the guest
	MOVQ	AX, 0x400(R12)
	MOVQ	$3, DI
	LEAQ	0x400(R12), SI
	MOVQ	$8, DX
	MOVQ	$noSignal, R10
	XORL	R8, R8
	XORL	R9, R9
	MOVQ	$sysSendto, AX
	SYSCALL
	TESTQ	R15, R15
	JNZ	exit

done: // closes the descriptors of a message, which belong to the child
	MOVQ	$4, DI
	MOVQ	$0xffffffff, SI
	XORL	DX, DX
	MOVQ	$sysCloseRange, AX
	SYSCALL

	MOVQ	$64, 0x228(R12)
	MOVQ	$3, DI
	LEAQ	0x200(R12), SI
	XORL	DX, DX
	MOVQ	$sysRecvmsg, AX
	SYSCALL
	TESTQ	AX, AX
	JLE	exit
	MOVQ	0(R13), DI
	TESTQ	DI, DI
	JZ	run
	XORL	SI, SI
	XORL	DX, DX
	MOVQ	8(R13), R10
	XORL	R8, R8
	MOVQ	$sysClone, AX
	SYSCALL
	TESTQ	AX, AX
	JLT	say
	JNZ	done
	MOVQ	$1, R15

run:
	LEAQ	16(R13), R14
next:
	MOVQ	0(R14), AX
	MOVQ	8(R14), DI
	MOVQ	16(R14), SI
	MOVQ	24(R14), DX
	CMPQ	AX, $-1
	JEQ	end
	CMPQ	AX, $-2
	JEQ	copy
	CMPQ	AX, $-3
	JEQ	done
	CMPQ	AX, $-4
	JEQ	function
	MOVQ	32(R14), R10
	MOVQ	40(R14), R8
	MOVQ	48(R14), R9
	SYSCALL
	CMPQ	AX, $isError
	JCC	say
result:
	MOVQ	56(R14), DI
	TESTQ	DI, DI
	JZ	advance
	MOVQ	AX, 0(DI)
advance:
	ADDQ	$64, R14
	JMP	next
copy:
	MOVQ	DX, CX
	REP; MOVSB
	JMP	advance

function: // calls a function of the C library, unless its address is 0
	MOVQ	(DI), AX
	TESTQ	AX, AX
	JZ	advance
	MOVQ	SI, DI
	MOVQ	DX, SI
	MOVQ	32(R14), DX
	MOVQ	SP, BX
	ANDQ	$~15, SP
	CALL	AX
	MOVQ	BX, SP
	JMP	result

end:
	TESTQ	R15, R15
	JZ	done
	POPQ	R15
	POPQ	R14
	POPQ	R13
	POPQ	R12
	POPQ	BP
	POPQ	BX
	RET

exit:
	MOVQ	$127, DI
	MOVQ	$sysExitGroup, AX
	SYSCALL
	INT	$3

	LONG	$0x74726562 // endOfText, the end of the copy
	LONG	$0x646e6521
	RET

// func codeAddress() unsafe.Pointer
TEXT ·codeAddress(SB),NOSPLIT,$0-8
	LEAQ	zygoteCode<>(SB), AX
	MOVQ	AX, ret+0(FP)
	RET
