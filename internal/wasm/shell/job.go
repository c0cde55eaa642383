package shell

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

func (s *shell) jobsCmd(args []string) int {
	pids := len(args) > 1 && args[1] == "-p"
	list := s.jobs
	if len(list) == 0 {
		list = s.others
	}
	for i, j := range list {
		state := "Running"
		select {
		case <-j.p.done:
			if j.reported {
				continue
			}
			j.reported = true
			state = "Done"
		default:
		}
		if pids {
			s.out(strconv.Itoa(j.p.pid) + "\n")
			continue
		}
		s.out(fmt.Sprintf("[%d] %-26s %s\n", i+1, state, j.text))
	}
	return 0
}

// findJob returns a job by %number, %%, %+, %- or process id.
func (s *shell) findJob(spec string) *job {
	if rest, ok := strings.CutPrefix(spec, "%"); ok {
		n := len(s.jobs)
		switch rest {
		case "", "%", "+":
		case "-":
			n--
		default:
			n = s.number(rest)
		}
		if n >= 1 && n <= len(s.jobs) {
			return s.jobs[n-1]
		}
		return nil
	}
	pid := s.number(spec)
	for _, j := range s.jobs {
		if j.p.pid == pid {
			return j
		}
	}
	return nil
}

// waitCmd waits for jobs. A signal with a trap interrupts it.
func (s *shell) waitCmd(args []string) int {
	args = args[1:]
	if len(args) > 0 && args[0] == "-n" {
		return s.waitAny()
	}
	if len(args) == 0 {
		for _, j := range s.jobs {
			if status, ok := s.await(j); !ok {
				return status
			}
		}
		s.jobs = nil
		return 0
	}
	status := 0
	for _, a := range args {
		j := s.findJob(a)
		if j == nil {
			status = 127
			continue
		}
		var ok bool
		if status, ok = s.await(j); !ok {
			return status
		}
	}
	return status
}

// await waits for one job. ok is false if a signal arrived first.
func (s *shell) await(j *job) (status int, ok bool) {
	select {
	case <-j.p.done:
		return j.p.status, true
	default:
	}
	select {
	case <-j.p.done:
		return j.p.status, true
	case <-s.p.signaled:
		sigs := s.p.takePending()
		for _, sig := range sigs {
			s.trapAction(s.traps[sig])
		}
		if len(sigs) == 0 { // its trap has already run
			return s.await(j)
		}
		return 128 + int(sigs[0]), false
	case <-s.p.ctx.Done():
		panic(s.p.killedBy())
	}
}

// waitAny waits for the first job to end.
func (s *shell) waitAny() int {
	if len(s.jobs) == 0 {
		return 127
	}
	ended := make(chan *job, len(s.jobs))
	for _, j := range s.jobs {
		s.sys.running.Go(func() {
			<-j.p.done
			ended <- j
		})
	}
	select {
	case j := <-ended:
		s.jobs = slices.DeleteFunc(s.jobs, func(other *job) bool { return other == j })
		return j.p.status
	case <-s.p.ctx.Done():
		panic(s.p.killedBy())
	}
}

// kill implements kill. It reaches processes of the same Run only.
func (s *shell) kill(args []string) int {
	args = args[1:]
	sig := sigTERM
	if len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' && args[0] != "--" {
		opt := args[0][1:]
		args = args[1:]
		switch {
		case opt == "l" || opt == "L":
			return s.killList(args)
		case opt == "s" || opt == "n":
			if len(args) == 0 {
				return s.usage("kill", "argument expected")
			}
			opt, args = args[0], args[1:]
		}
		var ok bool
		if sig, ok = parseSignal(opt); !ok || sig >= sigERR {
			return s.usage("kill", "Illegal option -%s", opt)
		}
	}
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		return s.usage("kill", "no process given")
	}
	status := 0
	for _, a := range args {
		p, ok := s.killTarget(a)
		switch {
		case !ok:
			s.errorf("kill: Illegal number: %s", a)
			status = 2
		case p == nil:
			s.errorf("kill: No such process")
			status = 1
		case sig != 0:
			p.signal(sig)
		}
	}
	s.p.check()
	return status
}

// killTarget returns the process for an argument. ok is false if the argument is malformed.
func (s *shell) killTarget(a string) (*process, bool) {
	if strings.HasPrefix(a, "%") {
		if j := s.findJob(a); j != nil {
			return s.sys.find(j.p.pid), true
		}
		return nil, true
	}
	pid, err := strconv.Atoi(a)
	if err != nil {
		return nil, false
	}
	if pid < 0 {
		pid = -pid
	}
	if pid == 0 {
		pid = s.mainPID
	}
	return s.sys.find(pid), true
}

func (s *shell) killList(args []string) int {
	if len(args) == 0 {
		return s.out(strings.ReplaceAll(signalNames, " ", "\n") + "\n")
	}
	for _, a := range args {
		if n, err := strconv.Atoi(a); err == nil {
			s.out(signal(n&0x7f).String() + "\n")
		} else if sig, ok := parseSignal(a); ok {
			s.out(strconv.Itoa(int(sig)) + "\n")
		}
	}
	return 0
}

// trap implements trap.
func (s *shell) trap(args []string) int {
	args = args[1:]
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) > 0 && args[0] == "-l" {
		return s.killList(nil)
	}
	if len(args) == 0 || args[0] == "-p" {
		traps := s.traps
		if s.outerTraps != nil { // $(trap) prints the traps of the parent shell
			traps = s.outerTraps
		}
		for _, sig := range slices.Sorted(maps.Keys(traps)) {
			s.out("trap -- " + singleQuote(traps[sig]) + " " + sig.String() + "\n")
		}
		return 0
	}
	action, reset := args[0], args[0] == "-"
	sigs := args[1:]
	if _, err := strconv.Atoi(action); err == nil || len(sigs) == 0 {
		reset, sigs = true, args
	}
	status := 0
	for _, name := range sigs {
		sig, ok := parseSignal(name)
		if !ok {
			s.errorf("trap: %s: bad trap", name)
			status = 1
			continue
		}
		s.setTrap(sig, action, reset)
	}
	return status
}

func (s *shell) setTrap(sig signal, action string, reset bool) {
	s.outerTraps = nil
	if reset {
		delete(s.traps, sig)
	} else {
		s.traps[sig] = action
	}
	s.p.sigMu.Lock()
	defer s.p.sigMu.Unlock()
	if s.p.handled == nil {
		s.p.handled = map[signal]bool{}
	}
	if s.p.ignored == nil {
		s.p.ignored = map[signal]bool{}
	}
	s.p.ignored[sig] = !reset && action == ""
	s.p.handled[sig] = !reset && action != ""
}

// readLine reads from descriptor 0 up to a delimiter, and leaves what follows to other processes:
// it reads single bytes, or seeks back in a file. limit >= 0 bounds the bytes.
func (s *shell) readLine(delim byte, keep bool, limit int) (line []byte, ok bool) {
	in := s.p.stream(0)
	buf := make([]byte, 1)
	file := in.File()
	if file != nil {
		buf = make([]byte, 512)
	}
	for limit < 0 || len(line) < limit {
		n, err := in.Read(buf)
		for i := range n {
			end := buf[i] == delim
			if !end || keep {
				line = append(line, buf[i])
			}
			if end || limit >= 0 && len(line) == limit {
				if file != nil {
					_, _ = file.Seek(int64(i+1-n), io.SeekCurrent)
				}
				return line, true
			}
		}
		if err != nil {
			return line, false
		}
		s.bound(len(line))
	}
	return line, true
}
