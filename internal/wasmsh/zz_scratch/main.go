package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/sandbar-dev/sandbar/internal/memfs"
	"github.com/sandbar-dev/sandbar/internal/wasmsh"
)

func main() {
	f := memfs.New(memfs.Limits{Bytes: 64 << 20, Inodes: 100000})
	if err := wasmsh.Install(f, nil); err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	t := time.Now()
	st, err := wasmsh.Run(ctx, wasmsh.Config{FS: f, Dir: "/tmp", Script: os.Args[1], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr})
	fmt.Fprintf(os.Stderr, "[%d %v %v]\n", st, err, time.Since(t))
}
