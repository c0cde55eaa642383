package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandbar-dev/sandbar/internal/cli"
)

// Every mistake is reported with the allowed values and exit code 2, before a driver is opened.
func TestBadInput(t *testing.T) {
	const (
		tryEval  = "Try \"sandbar eval --help\".\n"
		tryRun   = "Try \"sandbar run --help\".\n"
		tryServe = "Try \"sandbar serve --help\".\n"
		try      = "Try \"sandbar --help\".\n"
	)
	words := func(s string) []string { return strings.Fields(s) }
	for name, tc := range map[string]struct {
		in   invocation
		want string
	}{
		"unknown command":       {invocation{args: words("evil")}, "sandbar: unknown command \"evil\"; did you mean eval?\n" + try},
		"unknown command, far":  {invocation{args: words("banana")}, "sandbar: unknown command \"banana\"\n" + try},
		"harmful command":       {invocation{args: []string{"\x1b[31m"}}, "sandbar: unknown command \"\\x1b[31m\"\n" + try},
		"help for nothing":      {invocation{args: words("help evl")}, "sandbar: unknown command \"evl\"; did you mean eval?\nTry \"sandbar help --help\".\n"},
		"unknown flag":          {invocation{args: words("eval python --memroy 1GiB")}, "sandbar: unknown flag --memroy; did you mean --memory?; flags of the program come after \"--\"\n" + tryEval},
		"unknown short flag":    {invocation{args: words("run host ls -l")}, "sandbar: unknown flag -l; flags of the program come after \"--\"\n" + tryRun},
		"unknown flag of serve": {invocation{args: words("serve --port 80")}, "sandbar: unknown flag --port\n" + tryServe},
		"flag without value":    {invocation{args: words("eval python --memory")}, "sandbar: the flag --memory needs a value\n" + tryEval},
		"bad boolean":           {invocation{args: words("eval python --json=maybe")}, "sandbar: --json: \"maybe\" is neither true nor false (allowed: --json, --json=true or --json=false)\n" + tryEval},
		"malformed flag":        {invocation{args: words("eval python --=x")}, "sandbar: \"--=x\" is not a flag\n" + tryEval},
		"argument for version":  {invocation{args: words("version please")}, "sandbar: version takes no arguments, got \"please\"\nTry \"sandbar version --help\".\n"},
		"argument for serve":    {invocation{args: words("serve now")}, "sandbar: serve takes no arguments, got \"now\"\n" + tryServe},
		"no shell":              {invocation{args: words("completion")}, "sandbar: the shell's name is missing (allowed: bash, fish, powershell, zsh)\nTry \"sandbar completion --help\".\n"},
		"unknown shell":         {invocation{args: words("completion csh")}, "sandbar: no completion for the shell \"csh\" (allowed: bash, fish, powershell, zsh)\nTry \"sandbar completion --help\".\n"},

		"no language":       {invocation{args: words("eval")}, "sandbar: no language was given (allowed: elixir, javascript, python, shell)\n" + tryEval},
		"empty language":    {invocation{args: []string{"eval", "", "-c", "x"}}, "sandbar: no language was given (allowed: elixir, javascript, python, shell)\n" + tryEval},
		"code and file":     {invocation{args: words("eval python -c x f.py")}, "sandbar: \"f.py\" is one argument too many; arguments of the program come after \"--\"\n" + tryEval},
		"two files":         {invocation{args: words("eval python a.py b.py")}, "sandbar: \"b.py\" is one argument too many; arguments of the program come after \"--\"\n" + tryEval},
		"empty file name":   {invocation{args: []string{"eval", "python", ""}}, "sandbar: the file's name is empty (allowed: a file, or -)\n" + tryEval},
		"no such file":      {invocation{args: words("eval python /none/f.py")}, "sandbar: /none/f.py cannot be read: no such file or directory (allowed: a file that can be read)\n" + tryEval},
		"directory as file": {invocation{args: words("eval python /")}, "sandbar: / cannot be read: is a directory (allowed: a file that can be read)\n" + tryEval},
		"code too large": {invocation{args: words("eval python -"), stdin: strings.Repeat("#", 11), environ: words("SANDBAR_MAX_CODE=10B")},
			"sandbar: the code is larger than 10B (allowed: up to max_code, which the configuration sets)\n" + tryEval},
		"code for code and stdin": {invocation{args: words("eval python - --stdin -")}, "sandbar: --stdin: standard input already holds the code (allowed: a file)\n" + tryEval},
		"stdin of nothing":        {invocation{args: []string{"eval", "python", "-c", "x", "--stdin", ""}}, "sandbar: --stdin: the name is empty (allowed: a file, or -)\n" + tryEval},
		"stdin that is missing":   {invocation{args: words("eval python -c x --stdin /none")}, "sandbar: --stdin: /none cannot be read: no such file or directory (allowed: a file that can be read)\n" + tryEval},

		"no image":           {invocation{args: words("run")}, "sandbar: no image was given (allowed: host, or an installed image)\n" + tryRun},
		"no image but dash":  {invocation{args: words("run -- ls")}, "sandbar: no image was given (allowed: host, or an installed image)\n" + tryRun},
		"empty image":        {invocation{args: []string{"run", "", "--", "ls"}}, "sandbar: the image's name is empty (allowed: host, or an installed image)\n" + tryRun},
		"no dash":            {invocation{args: words("run host ls")}, "sandbar: the command comes after \"--\", as in: sandbar run host -- COMMAND\n" + tryRun},
		"dash after command": {invocation{args: words("run host ls -- -l")}, "sandbar: the command comes after \"--\", as in: sandbar run host -- COMMAND\n" + tryRun},
		"no command":         {invocation{args: words("run host --")}, "sandbar: no command was given after \"--\"\n" + tryRun},
		"empty command":      {invocation{args: []string{"run", "host", "--", ""}}, "sandbar: no command was given after \"--\"\n" + tryRun},

		"timeout without unit": {invocation{args: words("eval python -c x --timeout 5.5")},
			"sandbar: --timeout: \"5.5\" has no unit of time (allowed: a duration from 1ms to 8760h, such as 30s, or unlimited)\n"},
		"negative timeout": {invocation{args: words("eval python -c x --timeout -1s")},
			"sandbar: --timeout: \"-1s\" is negative (allowed: a duration from 1ms to 8760h, such as 30s, or unlimited)\n"},
		"timeout zero": {invocation{args: words("eval python -c x --timeout 0")},
			"sandbar: --timeout: \"0\" is out of range (allowed: a duration from 1ms to 8760h, such as 30s, or unlimited)\n"},
		"memory in parsecs": {invocation{args: words("run host --memory 3parsecs -- ls")},
			"sandbar: --memory: \"3parsecs\" has no known unit of size (allowed: a size from 1MiB to 1024TiB, such as 256MiB, or unlimited)\n"},
		"memory too small": {invocation{args: words("run host --memory 1KiB -- ls")},
			"sandbar: --memory: \"1KiB\" is out of range (allowed: a size from 1MiB to 1024TiB, such as 256MiB, or unlimited)\n"},
		"memory of nothing": {invocation{args: words("run host --memory 0 -- ls")},
			"sandbar: --memory: \"0MiB\" is out of range (allowed: a size from 1MiB to 1024TiB, such as 256MiB, or unlimited)\n"},
		"memory overflows": {invocation{args: words("run host --memory 99999999TiB -- ls")},
			"sandbar: --memory: \"99999999TiB\" is too large (allowed: a size from 1MiB to 1024TiB, such as 256MiB, or unlimited)\n"},
		"cpus": {invocation{args: words("run host --cpus NaN -- ls")},
			"sandbar: --cpus: \"NaN\" is not a number of processors (allowed: a number from 0.01 to 4096, such as 0.5, or unlimited)\n"},
		"shares": {invocation{args: words("run host --shares 1 -- ls")},
			"sandbar: --shares: \"1\" is out of range (allowed: a whole number from 2 to 262144, such as 100)\n"},
		"pids": {invocation{args: words("run host --pids 1.5 -- ls")},
			"sandbar: --pids: \"1.5\" is not a whole number (allowed: a whole number from 1 to 1099511627776, such as 100, or unlimited)\n"},
		"disk": {invocation{args: words("run host --disk all -- ls")},
			"sandbar: --disk: \"all\" is not a size (allowed: a size from 4KiB to 1024TiB, such as 256MiB, or unlimited)\n"},
		"output": {invocation{args: words("run host --output 0 -- ls")},
			"sandbar: --output: \"0\" is out of range (allowed: a size from 1B to 1024TiB, such as 256MiB, or unlimited)\n"},
		"two limits at once": {invocation{args: words("run host --pids x --disk y -- ls")},
			"sandbar: --pids: \"x\" is not a whole number (allowed: a whole number from 1 to 1099511627776, such as 100, or unlimited)\n" +
				"sandbar: --disk: \"y\" is not a size (allowed: a size from 4KiB to 1024TiB, such as 256MiB, or unlimited)\n"},
		"env without name":     {invocation{args: words("run host --env =x -- ls")}, "sandbar: --env: \"=x\" has no name (allowed: NAME=VALUE or NAME)\n" + tryRun},
		"env that is not here": {invocation{args: words("run host --env NOPE -- ls")}, "sandbar: --env: \"NOPE\" is not set here, so it cannot be passed on (allowed: NAME=VALUE or NAME)\n" + tryRun},

		"no such configuration": {invocation{args: words("serve --config /none.yaml")}, "sandbar: configuration file /none.yaml: no such file or directory (name a YAML file of at most 1 MiB that can be read)\n"},
		"empty configuration":   {invocation{args: []string{"serve", "--config", ""}}, "sandbar: --config: the name is empty (allowed: the path of a YAML file)\n" + tryServe},
		"unknown variable":      {invocation{args: words("eval python -c x"), environ: words("SANDBAR_MEMORY=1GiB")}, "sandbar: environment variable SANDBAR_MEMORY is not a setting of Sandbar (unset it; \"sandbar serve --print-config\" lists all settings)\n"},
		"bad variable":          {invocation{args: words("serve"), environ: words("SANDBAR_GRACE=soon")}, "sandbar: SANDBAR_GRACE: \"soon\" is not a duration (allowed: a duration from 1ms to 5m, such as 30s)\n"},
		"empty token":           {invocation{args: words("serve"), environ: words("SANDBAR_TOKEN=")}, "sandbar: SANDBAR_TOKEN: the value is empty (allowed: 1 to 4096 visible ASCII characters)\n"},
		"listen nowhere":        {invocation{args: words("serve --listen nowhere")}, "sandbar: --listen: \"nowhere\" is not HOST:PORT (allowed: HOST:PORT with a port from 0 to 65535, or unix:/absolute/path)\n"},
		"token file missing":    {invocation{args: words("serve --token-file /none")}, "sandbar: token_file: the token file /none cannot be read: no such file or directory (it must hold one line of 1 to 4096 visible ASCII characters)\n"},
		"log level":             {invocation{args: words("serve --log-level loud")}, "sandbar: --log-level: \"loud\" is not known (allowed: debug, info, warn or error)\n"},
		"certificate alone":     {invocation{args: words("serve --tls-cert c.pem")}, "sandbar: tls.cert (--tls-cert) is set without tls.key (set both, or neither for plain HTTP)\n"},
		"several at once": {invocation{args: words("serve --log-level loud --driver dokcer"), environ: words("SANDBAR_MAX_QUEUE=0")},
			"sandbar: SANDBAR_MAX_QUEUE: \"0\" is out of range (allowed: a whole number from 1 to 1000000, such as 100)\n" +
				"sandbar: --log-level: \"loud\" is not known (allowed: debug, info, warn or error)\n"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := tc.in.run(t)
			if diff := cmp.Diff(tc.want, stderr); diff != "" {
				t.Error(diff)
			}
			if code != cli.ExitUsage || stdout != "" {
				t.Errorf("exit code %d, stdout %q", code, stdout)
			}
		})
	}
}

func TestUnknownDriver(t *testing.T) {
	code, _, stderr := invocation{args: []string{"eval", "python", "-c", "x", "--driver", "dokcer"}}.run(t)
	if code != cli.ExitUsage || !strings.HasPrefix(stderr, "sandbar: --driver: there is no driver \"dokcer\" (allowed: auto, ") || !strings.HasSuffix(stderr, "local)\n") {
		t.Errorf("exit code %d, %q", code, stderr)
	}
}
