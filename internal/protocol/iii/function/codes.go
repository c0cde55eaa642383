package function

// Code is an error code of the worker (docs/protocols.md, iii: "Errors"). The set
// is closed.
type Code string

// The codes.
const (
	S001 Code = "S001" // the request is not valid
	S002 Code = "S002" // no such sandbox
	S003 Code = "S003" // too many programs run in the sandbox
	S004 Code = "S004" // the sandbox is stopping
	S100 Code = "S100" // no such image, or not allowed
	S101 Code = "S101" // the image is not installed and is not pulled
	S102 Code = "S102" // the image could not be pulled
	S200 Code = "S200" // a program exceeded its time limit
	S210 Code = "S210" // the file request is not valid
	S211 Code = "S211" // no such file or directory
	S212 Code = "S212" // a directory where a file is needed, or the reverse
	S213 Code = "S213" // it exists already
	S214 Code = "S214" // the directory is not empty
	S215 Code = "S215" // permission denied
	S216 Code = "S216" // any other error of the file system
	S217 Code = "S217" // the pattern is not a regular expression
	S218 Code = "S218" // the caller's stream stopped
	S219 Code = "S219" // the driver does not support the file operation
	S300 Code = "S300" // the platform failed
	S400 Code = "S400" // a limit was reached
)

// Codes is every Code, for tables and the tests that walk them.
var Codes = []Code{S001, S002, S003, S004, S100, S101, S102, S200, S210, S211, S212, S213, S214, S215, S216,
	S217, S218, S219, S300, S400}

// properties are the properties of a code.
type properties struct {
	kind      string // the payload's "type"
	retryable bool
	prefix    string // of the message
	note      string // fix_note without a fix
}

// properties returns a code's properties. Clients match messages by these prefixes.
func (c Code) properties() properties {
	switch c {
	case S001:
		return properties{"validation", false, "invalid request: ", "see message: examples are inline"}
	case S002:
		return properties{"validation", false, "sandbox not found: ", "the sandbox is gone; call sandbox::create first"}
	case S003:
		return properties{"validation", false, "", "wait for one of them to end; start what shall run on with \"nohup COMMAND >/tmp/log 2>&1 &\" " +
			"in a shell, or use another sandbox"}
	case S004:
		return properties{"validation", false, "sandbox already stopped: ", "the sandbox is gone; call sandbox::create first"}
	case S100:
		return properties{"config", false, "", "set `image` to a value listed in the message, or have the operator add it to custom_images and image_allowlist"}
	case S101:
		return properties{"internal", false, "", "operator action required: run `sandbar images pull <image-ref>` on the host, or set auto_install"}
	case S102:
		return properties{"transient", true, "", "transient: retry after a short delay"}
	case S200:
		return properties{"execution", false, "", "raise `timeout_ms` on the exec call or split the work into smaller steps"}
	case S210:
		return properties{kind: "filesystem"}
	case S211:
		return properties{kind: "filesystem", prefix: "file not found: "}
	case S212:
		return properties{kind: "filesystem", prefix: "not a directory or wrong type: "}
	case S213:
		return properties{kind: "filesystem", prefix: "already exists: "}
	case S214:
		return properties{kind: "filesystem", prefix: "directory not empty: "}
	case S215:
		return properties{kind: "filesystem", prefix: "permission denied: "}
	case S216:
		return properties{kind: "filesystem", prefix: "fs i/o error: "}
	case S217:
		return properties{kind: "filesystem", prefix: "invalid regex pattern: "}
	case S218:
		return properties{kind: "transient", retryable: true, prefix: "fs channel aborted: "}
	case S219:
		return properties{kind: "filesystem", prefix: "fs operation unsupported by this sandbox: "}
	case S400:
		return properties{"config", false, "resource limit exceeded: ", "ask for less, or wait until another sandbox has ended; the limits are the operator's"}
	}
	return properties{"platform", false, "VM boot failed: ", "platform-level failure; not auto-recoverable"} // S300
}
