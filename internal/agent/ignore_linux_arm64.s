#include "textflag.h"

// func handlers() (ignore, unlessFault, restorer uintptr)
//
// The kernel needs no restorer.
TEXT ·handlers(SB),NOSPLIT,$0-24
	MOVD	$ignore<>(SB), R0
	MOVD	R0, ignore+0(FP)
	MOVD	$unlessFault<>(SB), R0
	MOVD	R0, unlessFault+8(FP)
	MOVD	ZR, restorer+16(FP)
	RET

TEXT ignore<>(SB),NOSPLIT|NOFRAME,$0
	RET

// R1 is the address of a siginfo_t. Its si_code is above 0 if the kernel has sent the signal.
TEXT unlessFault<>(SB),NOSPLIT|NOFRAME,$0
	MOVW	8(R1), R2
	CMPW	$0, R2
	BLE	sent
	MOVD	$2, R0
	MOVD	$94, R8 // exit_group
	SVC
sent:
	RET
