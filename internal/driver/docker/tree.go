package docker

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
)

// writeTree writes the files of an image's root as an archive, all owned by root. Names and links
// are untrusted: they are read below the directory, and links are never followed.
func writeTree(w io.Writer, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	t := tar.NewWriter(w)
	err = fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return writeEntry(t, root, path)
	})
	return errors.Join(err, t.Close())
}

// writeEntry writes one file, directory or link, and skips other kinds.
func writeEntry(t *tar.Writer, root *os.Root, path string) error {
	info, err := root.Lstat(path)
	if err != nil {
		return err
	}
	link := ""
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		if link, err = root.Readlink(path); err != nil {
			return err
		}
	case !info.Mode().IsRegular() && !info.IsDir():
		return nil
	}
	h, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	h.Name = path
	if info.IsDir() {
		h.Name += "/"
	}
	h.Uid, h.Gid, h.Uname, h.Gname, h.Format = 0, 0, "", "", tar.FormatPAX
	if err := t.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
		return err
	}
	f, err := root.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(t, f)
	return err
}

// importAnswer reads the engine's progress messages of an import and returns its error.
func importAnswer(r io.Reader) error {
	for d := json.NewDecoder(r); ; {
		var note struct {
			Error string `json:"error"`
		}
		switch err := d.Decode(&note); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case note.Error != "":
			return errors.New(note.Error)
		}
	}
}

// agentArchive writes an archive with the agent's executable.
func agentArchive(w io.Writer, program []byte) error {
	t := tar.NewWriter(w)
	err := t.WriteHeader(&tar.Header{Name: agentFile, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(program))})
	if err == nil {
		_, err = t.Write(program)
	}
	return errors.Join(err, t.Close())
}
