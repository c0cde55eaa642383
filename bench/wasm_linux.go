package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"time"
)

// stdioSandbox is a running `sandbar stdio`.
type stdioSandbox struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	last int
}

func startStdio(path string, args ...string) (*stdioSandbox, error) {
	s := &stdioSandbox{cmd: exec.Command(path, append([]string{"stdio"}, args...)...)}
	s.cmd.Stderr = os.Stderr
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.out = bufio.NewReaderSize(out, 1<<20)
	return s, s.cmd.Start()
}

func (s *stdioSandbox) stop() error {
	s.in.Close()
	return s.cmd.Wait()
}

// answer is the union of the responses to the benchmarks' requests.
type answer struct {
	Stdout   string
	ExitCode *int `json:"exit_code"`
	TimedOut bool `json:"timed_out"`
	Success  bool
	Error    string
}

func (s *stdioSandbox) ask(request map[string]any) (a answer, err error) {
	s.last++
	request["id"] = fmt.Sprint(s.last)
	b, err := json.Marshal(request)
	if err != nil {
		return a, err
	}
	if _, err := s.in.Write(append(b, '\n')); err != nil {
		return a, err
	}
	line, err := s.out.ReadBytes('\n')
	if err != nil {
		return a, err
	}
	return a, json.Unmarshal(line, &a)
}

// shell runs a command and checks its output.
func (s *stdioSandbox) shell(command, want string) error {
	a, err := s.ask(map[string]any{"type": "shell", "command": command, "time_limit_ms": 60000})
	if err == nil && (a.Stdout != want || a.ExitCode == nil || *a.ExitCode != 0) {
		err = fmt.Errorf("%s: answered with %+v", command, a)
	}
	return err
}

// stdioCommand measures one command with everything loaded, in turn with the same command on the
// host.
func stdioCommand(line, want string, most time.Duration, bare ...string) func(*lab) (measured, error) {
	return func(l *lab) (measured, error) {
		s, err := startStdio(l.sandbar)
		if err != nil {
			return measured{}, err
		}
		ours, theirs, err := interleave(50, func() error { return s.shell(line, want) }, command(bare[0], bare[1:]...))
		if err == nil {
			err = s.stop()
		}
		if err != nil {
			return measured{}, err
		}
		return measured{value: ours.String(), baseline: fmt.Sprintf("bare %s: %s", bare[0], theirs), kept: ours.quantile(0.5) <= most}, nil
	}
}

func stdioStart(l *lab) (measured, error) {
	ours, err := sample(20, func() error {
		s, err := startStdio(l.sandbar)
		if err != nil {
			return err
		}
		if err := s.shell("echo up", "up\n"); err != nil {
			return err
		}
		return s.stop()
	})
	if err != nil {
		return measured{}, err
	}
	return measured{value: ours.String() + ", its end included", kept: ours.quantile(0.5) <= 300*time.Millisecond}, nil
}

func stdioReset(l *lab) (measured, error) {
	s, err := startStdio(l.sandbar)
	if err != nil {
		return measured{}, err
	}
	var took times
	for range 20 {
		if err := s.shell("head -c 20000000 /dev/zero > big; mkdir d; i=0; while [ $i -lt 500 ]; do echo $i > d/$i; i=$((i+1)); done; echo full", "full\n"); err != nil {
			return measured{}, err
		}
		began := time.Now()
		if a, err := s.ask(map[string]any{"type": "reset"}); err != nil || !a.Success {
			return measured{}, fmt.Errorf("reset: %+v, %w", a, err)
		}
		took = append(took, time.Since(began))
	}
	sortTimes(took)
	return measured{value: took.String(), baseline: "20 MB in one file and 500 files", kept: took.quantile(0.5) <= 5*time.Millisecond}, s.stop()
}

// stdioTimeout measures the delay of the answer to a limit of a second, for several kinds of work.
func stdioTimeout(l *lab) (measured, error) {
	s, err := startStdio(l.sandbar)
	if err != nil {
		return measured{}, err
	}
	var took times
	for _, command := range []string{
		"python3 -c 'while True: pass'", "python3 -c 'import time; time.sleep(30)'", "python3 -c '10**9000000'",
		"node -e 'for(;;);'", "node -e 'setTimeout(()=>{},30000)'", "while :; do :; done", "sleep 30",
	} {
		began := time.Now()
		a, err := s.ask(map[string]any{"type": "shell", "command": command, "time_limit_ms": 1000})
		if err != nil || !a.TimedOut {
			return measured{}, fmt.Errorf("%s: %+v, %w", command, a, err)
		}
		took = append(took, time.Since(began))
	}
	last := slices.Max(took)
	return measured{value: fmt.Sprintf("%.0f ms at most, of %d ways to spend time", ms(last), len(took)), kept: last <= 1100*time.Millisecond}, s.stop()
}
