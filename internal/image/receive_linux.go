package image

import "golang.org/x/sys/unix"

// receiveFlags marks a received descriptor in the call that receives it.
const receiveFlags = unix.MSG_CMSG_CLOEXEC
