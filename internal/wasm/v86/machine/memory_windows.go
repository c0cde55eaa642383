package machine

import "runtime/debug"

// reserve returns n bytes of zeros.
func reserve(n int64) []byte { return make([]byte, n) }

// release returns free memory to the system; the garbage collector frees the bytes.
func release([]byte) { debug.FreeOSMemory() }
