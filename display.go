package sandbar

import "encoding/json"

// Display is one rich result of a cell: a value in several representations. An empty field is a
// representation that the value does not have.
type Display struct {
	Text       string `json:"text,omitempty"` // text/plain
	HTML       string `json:"html,omitempty"`
	Markdown   string `json:"markdown,omitempty"`
	SVG        string `json:"svg,omitempty"`
	LaTeX      string `json:"latex,omitempty"`
	JavaScript string `json:"javascript,omitempty"`
	PNG        []byte `json:"png,omitempty"` // base64 in JSON, like JPEG and PDF
	JPEG       []byte `json:"jpeg,omitempty"`
	PDF        []byte `json:"pdf,omitempty"`
	// JSON is application/json, Data a table by its columns, Chart the data of a chart.
	JSON  json.RawMessage `json:"json,omitempty"`
	Data  json.RawMessage `json:"data,omitempty"`
	Chart json.RawMessage `json:"chart,omitempty"`
	// Extra are further representations by MIME type; binary ones are strings of base64.
	Extra map[string]json.RawMessage `json:"extra,omitempty"`
	// Main: the value of the cell's last expression, not one that the cell displayed.
	Main bool `json:"main,omitempty"`
}

// CellError is an error that a cell's code has raised, or the death of its interpreter.
type CellError struct {
	Name      string `json:"name,omitempty"` // such as "ValueError"
	Value     string `json:"value,omitempty"`
	Traceback string `json:"traceback,omitempty"`
}

// InterpreterEnded is the Name of the CellError of a cell whose interpreter ended.
const InterpreterEnded = "InterpreterEnded"
