package wire

// String names the kind of step, for error messages.
func (k MountKind) String() string {
	switch k {
	case MountTmpfs:
		return "mount tmpfs on"
	case MountBind, MountInner:
		return "bind"
	case MountProc:
		return "mount proc on"
	case MountDevpts:
		return "mount devpts on"
	case MountMkdir:
		return "make directory"
	case MountSymlink:
		return "make link"
	case MountFile:
		return "write file"
	case MountMask:
		return "mask"
	case MountMasks:
		return "mask others in"
	case MountCover:
		return "cover"
	case MountReseal:
		return "seal"
	case MountAttach:
		return "attach"
	case MountOverlay:
		return "mount overlay on"
	case MountRoot:
		return "choose the root"
	}
	return "step"
}
