package executor

// Names of fields are compared exactly. null counts as absent, and unknown fields are ignored. A
// known field that occurs twice makes the request invalid, because a proxy in front of this server
// might have checked the other one.

// fields has a decoder for each field of a request.
type fields map[string]func(*jsonReader) error

// read decodes a request. Nothing may follow it.
func (f fields) read(j *jsonReader) error {
	seen := make(map[string]bool, len(f))
	err := j.object(func(name string) error {
		value := f[name]
		if value == nil {
			return j.skip(1)
		}
		if seen[name] {
			return errSyntax
		}
		seen[name] = true
		if null, err := j.isNull(); err != nil || null {
			return err
		}
		return value(j)
	})
	if err != nil {
		return err
	}
	return j.finish()
}

func text(to *string) func(*jsonReader) error {
	return func(j *jsonReader) (err error) {
		*to, err = j.text()
		return err
	}
}

// environment decodes an object of strings.
func environment(to *map[string]string) func(*jsonReader) error {
	return func(j *jsonReader) error {
		env := map[string]string{}
		*to = env
		return j.object(func(name string) error {
			if _, ok := env[name]; ok {
				return errSyntax
			}
			value, err := j.text()
			env[name] = value
			return err
		})
	}
}

// command is the body of /run, /run_streaming and /start_process.
type command struct {
	cmd, cwd string
	env      map[string]string
	// in seconds; only if timed
	timeout float64
	timed   bool
	// encoding is that of the output in the response: "", "utf-8" or "base64".
	encoding string
}

// extras are the fields that the protocol does not have, and whether an endpoint has them.
type extras struct{ timeout, encoding bool }

func readCommand(j *jsonReader, with extras) (command, error) {
	c := command{}
	f := fields{"cmd": text(&c.cmd), "cwd": text(&c.cwd), "env": environment(&c.env)}
	if with.encoding {
		f["encoding"] = text(&c.encoding)
	}
	if with.timeout {
		f["timeout"] = func(j *jsonReader) (err error) {
			c.timed = true
			c.timeout, err = j.number()
			return err
		}
	}
	return c, f.read(j)
}

// readOne decodes a request with one string field.
func readOne(j *jsonReader, name string) (value string, err error) {
	return value, fields{name: text(&value)}.read(j)
}
