#include "textflag.h"

#define BASE 0x2000000000

// func start(args, size, code uintptr) (pid, errno uintptr)
//
// The child executes instructions from code on and never returns. It uses no stack, calls nothing
// and has no state but BX, the address of the current instruction. The system call itself changes
// RAX, RCX and R11 only.
TEXT ·start(SB),NOSPLIT|NOFRAME,$0-40
	MOVQ	args+0(FP), DI
	MOVQ	size+8(FP), SI
	MOVQ	code+16(FP), BX
	MOVQ	$435, AX // clone3
	SYSCALL
	TESTQ	AX, AX
	JZ	loop
	CMPQ	AX, $0xfffffffffffff001
	JCS	started
	NEGQ	AX
	MOVQ	$0, pid+24(FP)
	MOVQ	AX, errno+32(FP)
	RET
started:
	MOVQ	AX, pid+24(FP)
	MOVQ	$0, errno+32(FP)
	RET

loop:
	MOVQ	56(BX), R12 // Indirect
	MOVQ	8(BX), DI
	TESTQ	$1, R12
	JZ	arg1
	MOVL	(DI), DI
arg1:
	MOVQ	16(BX), SI
	TESTQ	$2, R12
	JZ	arg2
	MOVL	(SI), SI
arg2:
	MOVQ	24(BX), DX
	TESTQ	$4, R12
	JZ	arg3
	MOVL	(DX), DX
arg3:
	MOVQ	32(BX), R10
	TESTQ	$8, R12
	JZ	arg4
	MOVL	(R10), R10
arg4:
	MOVQ	40(BX), R8
	TESTQ	$16, R12
	JZ	arg5
	MOVL	(R8), R8
arg5:
	MOVQ	48(BX), R9
	TESTQ	$32, R12
	JZ	number
	MOVL	(R9), R9
number:
	MOVQ	0(BX), AX
	CMPQ	AX, $-1
	JEQ	equal
	CMPQ	AX, $-2
	JEQ	store
	SYSCALL
	TESTQ	AX, AX
	JNZ	save
	MOVQ	88(BX), CX // OnZero
	TESTQ	CX, CX
	JNZ	jump
save:
	MOVQ	64(BX), CX // Save
	TESTQ	CX, CX
	JZ	check
	MOVQ	AX, (CX)
check:
	CMPQ	AX, $0xfffffffffffff001
	JCS	next
	MOVQ	72(BX), CX // OnError
	TESTQ	CX, CX
	JZ	next
	MOVQ	$BASE, DX
	MOVQ	BX, 0(DX)
	MOVQ	AX, 8(DX)
jump:
	MOVQ	CX, BX
	JMP	loop
next:
	MOVQ	80(BX), CX // Next
	TESTQ	CX, CX
	JNZ	jump
	ADDQ	$96, BX
	JMP	loop
equal:
	CMPL	DI, SI
	JNE	next
	MOVQ	88(BX), CX
	JMP	jump
store:
	MOVQ	DI, AX
	JMP	save

// func address() uintptr
TEXT ·address(SB),NOSPLIT,$0-8
	MOVQ	$·start(SB), AX
	MOVQ	AX, ret+0(FP)
	RET
