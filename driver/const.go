package driver

import "time"

// DrainWindow is how long a driver goes on reading a program's outputs after
// its end while a descendant still holds them open. What is in the pipe by
// then is delivered.
const DrainWindow = 100 * time.Millisecond
