package wire

// String names the kind of step, for error messages.
func (k MountKind) String() string {
	switch k {
	case MountTmpfs:
		return "mount tmpfs on"
	case MountBind, MountBindInner:
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
	case MountMaskOthers:
		return "mask others in"
	case MountReplaceFile:
		return "cover"
	case MountSetFlags:
		return "seal"
	case MountAttach:
		return "attach"
	case MountOverlay:
		return "mount overlay on"
	case MountKeep:
		return "keep"
	case MountRestore:
		return "restore files in"
	case MountRoot:
		return "choose the root"
	}
	return "step"
}
