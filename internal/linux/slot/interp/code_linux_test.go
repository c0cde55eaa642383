//go:build amd64 || arm64

package interp

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// The code that runs in a process without a runtime calls nothing, uses no stack, touches neither
// the runtime's registers nor thread-local storage, and fits into the pages that are kept.
func TestCode(t *testing.T) {
	testenv.Need(t, testenv.GoTool)
	arches := []string{runtime.GOARCH}
	if testenv.Long() {
		arches = []string{"amd64", "arm64"}
	}
	for _, arch := range arches {
		t.Run(arch, func(t *testing.T) { checkCode(t, arch) })
	}
}

func checkCode(t *testing.T, arch string) {
	binary := filepath.Join(t.TempDir(), "test")
	build := exec.Command("go", "test", "-c", "-o", binary, ".")
	build.Env = append(os.Environ(), "GOARCH="+arch, "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.Command("go", "tool", "objdump", "-s", `interp\.start(\.abi0)?$`, binary).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	loopAt := map[string]string{"amd64": "0x38(BX), R12", "arm64": "56(R19), R20"}[arch] // its first instruction
	call := map[string]string{"amd64": "SYSCALL", "arm64": "SVC"}[arch]
	before, loop, found := strings.Cut(string(out), loopAt)
	if !found || !strings.Contains(before, call) || !strings.Contains(loop, call) {
		t.Fatalf("the loop is not there:\n%s", out)
	}
	loop, _, _ = strings.Cut(loop, "TEXT ") // what follows is the wrapper for Go callers
	for _, bad := range regexp.MustCompile(`(?m)^.*\b(CALL|BL|PUSHQ?|POPQ?|RET|R14|SP|RSP|FS|TLS|R28|g)\b.*$`).FindAllString(loop, -1) {
		t.Errorf("an instruction that must not be there: %s", bad)
	}
	addresses := regexp.MustCompile(`\t0x([0-9a-f]+)\t`).FindAllStringSubmatch(before+loop, -1)
	first, err1 := strconv.ParseInt(addresses[0][1], 16, 64)
	last, err2 := strconv.ParseInt(addresses[len(addresses)-1][1], 16, 64)
	if size := last - first + 8; err1 != nil || err2 != nil || size > codeSize {
		t.Errorf("the code has %d bytes, more than %d: %v, %v", size, codeSize, err1, err2)
	}
}
