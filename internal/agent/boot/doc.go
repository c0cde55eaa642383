// Package boot brings up a virtual machine of the vm driver. The kernel starts the agent's program
// as /init of the initial file system that package guest of the driver writes. Main mounts the
// machine's root, opens the connection and executes the same program as the agent in machine mode,
// still as process 1.
//
// The root is an overlay. Its lower layer is a read-only EROFS on the first virtio disk. Its upper
// layer, /tmp, /dev/shm and the programs' home are directories of one tmpfs, whose size bounds
// everything that programs write. A later remount of /tmp with another size changes that bound;
// programs lack the capability for it.
//
// Programs see /proc, a /dev with the usual devices and no disk or port, and no /sys. In /proc they
// can write only the entries of processes. They create no user namespace.
package boot

// Names that the host and the machine share.
const (
	// Port is the name of the virtio port of the agent's connection.
	Port = "sandbar.agent"
	// NetworkPort is the name of the virtio port for packets (wire.PacketReader).
	NetworkPort = "sandbar.network"
	// Init is the path of the program in the initial file system.
	Init = "/init"
	// ModuleDir has the kernel modules, NAME.ko, and OrderFile.
	ModuleDir = "/modules"
	// OrderFile lists the files of ModuleDir in load order, one a line.
	OrderFile = ModuleDir + "/order"
	// DiskParameter is the kernel parameter with the size of the tmpfs in bytes. Default: half of
	// the machine's memory.
	DiskParameter = "sandbar.disk"
	// InodesParameter is the kernel parameter with the number of inodes of the tmpfs. Default: the
	// kernel's.
	InodesParameter = "sandbar.inodes"
	// FailurePrefix begins the line that the machine writes to the port, or to the console if there
	// is no port yet, before it powers off because a step failed.
	FailurePrefix = "SANDBAR-BOOT-FAILED "
)
