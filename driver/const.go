package driver

import "time"

// DrainWindow is how long a driver continues to read a program's outputs after the program's end if
// a descendant keeps them open. Bytes that are in the pipe after that time are still delivered.
const DrainWindow = 100 * time.Millisecond
