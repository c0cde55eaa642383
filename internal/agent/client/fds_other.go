//go:build !linux

package client

import (
	"io"
	"net"
	"os"

	"github.com/sandbar-dev/sandbar"
)

// Only processes of one Linux kernel can pass descriptors; elsewhere every connection carries
// frames.

func canPass(net.Conn) bool { return false }

func readWithFDs(conn net.Conn, b []byte) ([]int, error) {
	_, err := io.ReadFull(conn, b)
	return nil, err
}

func writeWithFDs(conn net.Conn, b []byte, fds []int) error {
	_, err := conn.Write(b)
	return err
}

func closeFDs([]int) {}

type pipes struct {
	in       *os.File
	out, err *pipeReader
	theirs   []int
}

func makePipes(stdin, stdout, stderr bool, own func(fd int)) (*pipes, error) {
	return nil, sandbar.Errorf(sandbar.Unsupported, "descriptors cannot be passed on this system")
}

func chownPipe(fd, uid, gid int) {}

func (p *pipes) closeTheirs() {}
func (p *pipes) close()       {}

type pipeReader struct{ io.ReadCloser }

func (r *pipeReader) finish() {}

func asFile(int, string, bool) (*os.File, error) { return nil, errViolation }
func asConn(int) (net.Conn, error)               { return nil, errViolation }
func isTun(int) bool                             { return false }
func isAnonymous(int) bool                       { return false }
