package image

import "golang.org/x/sys/unix"

// receiveFlags sets close-on-exec on received descriptors atomically.
const receiveFlags = unix.MSG_CMSG_CLOEXEC
