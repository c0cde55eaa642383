#include "textflag.h"

// func handlers() (ignore, unlessFault, restorer uintptr)
TEXT ·handlers(SB),NOSPLIT,$0-24
	MOVQ	$ignore<>(SB), AX
	MOVQ	AX, ignore+0(FP)
	MOVQ	$unlessFault<>(SB), AX
	MOVQ	AX, unlessFault+8(FP)
	MOVQ	$restorer<>(SB), AX
	MOVQ	AX, restorer+16(FP)
	RET

TEXT ignore<>(SB),NOSPLIT|NOFRAME,$0
	RET

// SI is the address of a siginfo_t. Its si_code is above 0 if the kernel has sent the signal.
TEXT unlessFault<>(SB),NOSPLIT|NOFRAME,$0
	CMPL	8(SI), $0
	JLE	sent
	MOVL	$2, DI
	MOVL	$231, AX // exit_group
	SYSCALL
sent:
	RET

TEXT restorer<>(SB),NOSPLIT|NOFRAME,$0
	MOVL	$15, AX // rt_sigreturn
	SYSCALL
