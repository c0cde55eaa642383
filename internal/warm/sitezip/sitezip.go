// Package sitezip packs a Python program that the interpreter runs at the end of its start-up, as
// the module sitecustomize. The module is in a zip file and not in a directory, because Python
// writes compiled modules into directories.
package sitezip

import (
	"archive/zip"
	"bytes"
	"time"
)

// Variable is the environment variable that puts the file first on the interpreter's path.
const Variable = "PYTHONPATH"

// Pack returns a zip file with source as sitecustomize.py. The result depends on source only. It is
// not compressed, so that Python needs no zlib to read it.
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
