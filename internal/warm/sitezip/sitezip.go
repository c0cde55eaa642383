// Package sitezip packs a program that Python is to run at the end of its start-up,
// as its sitecustomize. It is a zip file in front of the interpreter's path: of
// modules in directories Python writes down the compiled code beside them.
package sitezip

import (
	"archive/zip"
	"bytes"
	"time"
)

// Variable of the environment puts the file in front of the interpreter's path.
const Variable = "PYTHONPATH"

// Pack returns the zip file of which Python imports source as sitecustomize. It is
// the same for the same source, and not compressed, so that reading it needs no
// module besides.
func Pack(source []byte) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, err := z.CreateHeader(&zip.FileHeader{Name: "sitecustomize.py", Method: zip.Store, Modified: time.Unix(1<<30, 0).UTC()})
	if err == nil {
		_, err = w.Write(source)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil { // writing to memory does not fail
		panic(err)
	}
	return b.Bytes()
}
