// Package tools has the utilities of the sandbox's shell, such as those of coreutils, grep, sed,
// awk and tar, as Go functions on the sandbox's files. Options and output are those of the GNU
// programs as far as scripts rely on them. An unknown option is an error.
package tools

import (
	"github.com/sandbar-dev/sandbar/internal/wasm/shell/program"
)

// The user and the host name that programs see.
const (
	UserName = "user"
	UserID   = "1000"
	Home     = "/home/user"
	HostName = "sandbox"
)

// Programs returns the utilities by name.
func Programs() map[string]program.Program {
	programs := map[string]program.Program{
		"[":      builtinTool(`[ "$@"`),
		"echo":   builtinTool(`echo "$@"`),
		"false":  builtinTool(`false`),
		"kill":   builtinTool(`kill "$@"`),
		"printf": builtinTool(`printf "$@"`),
		"pwd":    builtinTool(`pwd -P`),
		"test":   builtinTool(`test "$@"`),
		"true":   builtinTool(`true`),
	}
	for name, f := range map[string]func(*cmd){
		"arch": arch, "awk": awkTool, "gawk": awkTool, "mawk": awkTool, "base32": baseN, "base64": baseN, "basename": basename, "cat": cat, "chgrp": chown, "chmod": chmod, "chown": chown,
		"cksum": cksum, "cmp": cmpTool, "column": column, "comm": comm, "cp": cp, "cut": cut, "date": date, "dd": dd, "df": df,
		"diff": diffTool, "dirname": dirname, "du": du, "egrep": grep, "env": env, "expand": expand, "expr": expr, "fgrep": grep, "file": file, "find": find,
		"fold": fold, "grep": grep, "gunzip": gzipTool, "gzip": gzipTool, "hd": hexdump, "head": head, "hexdump": hexdump, "hostname": hostname,
		"id": id, "install": install, "join": joinTool, "jq": jq, "ln": ln, "logname": logname, "ls": ls, "md5sum": md5sum, "mkdir": mkdir, "mkfifo": mkfifo,
		"mktemp": mktemp, "mv": mv, "nice": wrapper("n: adjustment", nil), "nl": nl, "nohup": wrapper(), "nproc": nproc, "od": od, "paste": paste, "printenv": printenv,
		"readlink": readlink, "realpath": realpath, "rev": rev, "rm": rm, "rmdir": rmdir, "sed": sedTool, "seq": seq, "sha1sum": sha1sum, "sha224sum": sha224sum,
		"sha256sum": sha256sum, "sha384sum": sha384sum, "sha512sum": sha512sum, "shuf": shuf, "sleep": sleep, "sort": sortTool, "split": split, "stat": stat,
		"strings": stringsTool, "sync": sync, "tac": tac, "tail": tail, "tar": tarTool, "tee": tee, "timeout": timeout, "touch": touch, "tr": tr,
		"truncate": truncate, "tty": tty, "uname": uname, "unexpand": unexpand, "uniq": uniq, "unlink": unlink, "wc": wc, "which": which, "whoami": whoami,
		"xargs": xargs, "xxd": xxd, "yes": yes, "zcat": gzipTool,
	} {
		programs[name] = tool(f)
	}
	return programs
}
