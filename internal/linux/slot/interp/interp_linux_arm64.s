#include "textflag.h"

#define BASE 0x2000000000

// func start(args, size, code uintptr) (pid, errno uintptr)
//
// The child executes instructions from code on and never returns. It uses no stack, calls nothing
// and has no state but R19, the address of the current instruction. The system call itself changes
// R0 only.
TEXT ·start(SB),NOSPLIT|NOFRAME,$0-40
	MOVD	args+0(FP), R0
	MOVD	size+8(FP), R1
	MOVD	code+16(FP), R19
	MOVD	$435, R8 // clone3
	SVC
	CBZ	R0, loop
	CMN	$4095, R0
	BCC	started
	NEG	R0, R4
	MOVD	ZR, pid+24(FP)
	MOVD	R4, errno+32(FP)
	RET
started:
	MOVD	R0, pid+24(FP)
	MOVD	ZR, errno+32(FP)
	RET

loop:
	MOVD	56(R19), R20 // Indirect
	MOVD	8(R19), R0
	TBZ	$0, R20, arg1
	MOVWU	(R0), R0
arg1:
	MOVD	16(R19), R1
	TBZ	$1, R20, arg2
	MOVWU	(R1), R1
arg2:
	MOVD	24(R19), R2
	TBZ	$2, R20, arg3
	MOVWU	(R2), R2
arg3:
	MOVD	32(R19), R3
	TBZ	$3, R20, arg4
	MOVWU	(R3), R3
arg4:
	MOVD	40(R19), R4
	TBZ	$4, R20, arg5
	MOVWU	(R4), R4
arg5:
	MOVD	48(R19), R5
	TBZ	$5, R20, number
	MOVWU	(R5), R5
number:
	MOVD	0(R19), R8
	CMN	$1, R8
	BEQ	equal
	CMN	$2, R8
	BEQ	save // R0 is the value to store
	SVC
	CBNZ	R0, save
	MOVD	88(R19), R9 // OnZero
	CBNZ	R9, jump
save:
	MOVD	64(R19), R9 // Save
	CBZ	R9, check
	MOVD	R0, (R9)
check:
	CMN	$4095, R0
	BCC	next
	MOVD	72(R19), R9 // OnError
	CBZ	R9, next
	MOVD	$BASE, R10
	MOVD	R19, 0(R10)
	MOVD	R0, 8(R10)
jump:
	MOVD	R9, R19
	B	loop
next:
	MOVD	80(R19), R9 // Next
	CBNZ	R9, jump
	ADD	$96, R19
	B	loop
equal:
	CMPW	R1, R0
	BNE	next
	MOVD	88(R19), R9
	B	jump

// func address() uintptr
TEXT ·address(SB),NOSPLIT,$0-8
	MOVD	$·start(SB), R0
	MOVD	R0, ret+0(FP)
	RET
