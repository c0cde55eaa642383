package agent

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandbar-dev/sandbar/internal/test/testenv"
)

// resolving are the functions of unix and os that resolve a name by following links. The list
// excludes functions that use an open directory and never follow the last name (Mkdirat, Mknodat,
// Unlinkat, Renameat).
var resolving = strings.Fields(`Open Openat Openat2 Creat Stat Lstat Statx Fstatat Chmod Fchmodat Chown Lchown Fchownat
	Mkdir Mknod Readlink Readlinkat Truncate Utime Utimes UtimesNano UtimesNanoAt Futimesat Access Faccessat Faccessat2 Statfs
	Setxattr Lsetxattr Getxattr Lgetxattr Removexattr Lremovexattr Listxattr Link Linkat Symlink Symlinkat Rename Unlink Rmdir
	Chdir Chroot OpenFile ReadFile WriteFile ReadDir Create MkdirAll Remove RemoveAll DirFS OpenRoot`)

// resolvers are the files that may call them, with the reason.
var resolvers = map[string]string{
	"names_linux.go":      "the one way to names of the guest's tree",
	"setup_linux.go":      "names of the plan, before any program runs",
	"overlay_linux.go":    "names of the plan, before any program runs",
	"stage_linux.go":      "names of the plan, before any program runs",
	"cgroup_linux.go":     "constants, of a cgroup that programs cannot reach",
	"network_linux.go":    "a constant, before any program runs",
	"sys_unsafe_linux.go": "names of the plan, before any program runs",
	"spawner_linux.go":    "names of the host's",
	"conn_linux.go":       "a constant, before any program runs",
	"proc_linux.go":       "names of /proc, which no program can change",
	"watchdog_linux.go":   "names of /proc, and mounts of the plan",
	"adopt_linux.go":      "names of /proc, which no program can change",
	"oomscore_linux.go":   "a constant of /proc",
}

func TestNamesAreResolvedSafely(t *testing.T) {
	testenv.Need(t, testenv.Linux)
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) < 20 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || resolvers[file] != "" {
			continue
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			s, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !slices.Contains(resolving, s.Sel.Name) || ownProc(call) {
				return true
			}
			if pkg, ok := s.X.(*ast.Ident); ok && slices.Contains([]string{"unix", "os", "syscall"}, pkg.Name) {
				t.Errorf("%s: %s.%s resolves a name, which a program may exchange: use find or openAt (names_linux.go)", fset.Position(n.Pos()), pkg.Name, s.Sel.Name)
			}
			return true
		})
	}
	for file := range resolvers {
		if !slices.Contains(files, file) {
			t.Errorf("%s is not there any more", file)
		}
	}
}

// ownProc reports whether the name begins with a literal path of the agent's own /proc.
func ownProc(call *ast.CallExpr) bool {
	for at := call.Args[0]; ; {
		switch x := at.(type) {
		case *ast.BinaryExpr:
			at = x.X
		case *ast.BasicLit:
			text, _ := strconv.Unquote(x.Value)
			return strings.HasPrefix(text, "/proc/")
		default:
			return false
		}
	}
}

// Both ways to change a mode change the open file, even if its name now belongs to another file,
// and whatever its mode is. Every kernel supports the way of older kernels.
func TestChmodByDescriptor(t *testing.T) {
	testenv.Need(t, testenv.Linux)
	dir := t.TempDir()
	for name, way := range map[string]func(int, uint32) error{"fchmodat2": chmod, "proc": chmodByProc} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0); err != nil { // a file without read permission
			t.Fatal(err)
		}
		fd, _, err := openPath(unix.AT_FDCWD, path, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		other := filepath.Join(dir, "other")
		if err := os.WriteFile(other, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path, path+".moved"); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(other, path); err != nil {
			t.Fatal(err)
		}
		if err := way(fd, 0o1640); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var st unix.Stat_t
		if err := unix.Stat(path+".moved", &st); err != nil || st.Mode != unix.S_IFREG|0o1640 {
			t.Errorf("%s: the file has the mode %o, %v", name, st.Mode, err)
		}
		if err := unix.Stat(other, &st); err != nil || st.Mode != unix.S_IFREG|0o600 {
			t.Errorf("%s: the file that a link at its name leads to has the mode %o, %v", name, st.Mode, err)
		}
	}
}

// No name resolves to a magic link or to a file of the kernel.
func TestFindRefuses(t *testing.T) {
	testenv.Need(t, testenv.Linux)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/proc/self/exe", link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{
		"/proc/self/exe": unix.ELOOP, "/proc/self/root/usr": unix.ELOOP, "/proc/self/fd/0": unix.ELOOP, link: unix.ELOOP,
		"/proc/self/status": unix.EACCES, "/proc": unix.EACCES, "/proc/self": unix.EACCES, "/usr": nil,
	} {
		fd, _, err := openPath(unix.AT_FDCWD, path, 0)
		if err != want {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
		if err == nil {
			unix.Close(fd)
		}
	}
}
