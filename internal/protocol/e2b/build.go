package e2b

// build is what a template adds to its files.
type build struct {
	ID string `json:"id"`
	// Dir is the working directory of commands, "" for the home directory.
	Dir string `json:"dir,omitempty"`
	// Start is the command that every sandbox of the template starts, Ready the command that succeeds
	// when a sandbox can be used.
	Start string `json:"start,omitempty"`
	Ready string `json:"ready,omitempty"`
	// Steps are the digests of the steps, each with those before it.
	Steps []string `json:"steps,omitempty"`
}
