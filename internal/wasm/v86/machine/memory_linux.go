package machine

import "golang.org/x/sys/unix"

const mapNoReserve = unix.MAP_NORESERVE
