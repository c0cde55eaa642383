// A program of another module: the root package alone.
package main

import (
	"fmt"
	"time"

	"github.com/sandbar-dev/sandbar"
)

func main() {
	job := sandbar.Job{Language: "python", Code: "print(1)",
		Spec: sandbar.Spec{Network: sandbar.NetworkNone, Limits: sandbar.Limits{Memory: 64 << 20, Timeout: time.Second}}}
	err := sandbar.CheckEnv(map[string]string{"A=B": ""})
	fmt.Println(job.Language, sandbar.CodeOf(err), sandbar.TimedOut, sandbar.Codes)
}
