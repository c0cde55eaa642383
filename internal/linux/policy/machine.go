package policy

// machineCapability is a capability that programs of a machine keep, and its reason.
type machineCapability struct {
	number uint8 // linux/capability.h
	name   string
	why    string
}

// machineCapabilities are those that container engines give by default, except MKNOD: the device
// node of the machine's disk or of the agent's port would give access to it.
func machineCapabilities() []machineCapability {
	return []machineCapability{
		{0, "CHOWN", "package managers set owners"},
		{1, "DAC_OVERRIDE", "user 0 reads and writes files of others"},
		{3, "FOWNER", "user 0 changes modes and times of files of others"},
		{4, "FSETID", "setgid bits survive a change of the file"},
		{5, "KILL", "init scripts end processes of other users"},
		{6, "SETGID", "su, and daemons that give up their rights"},
		{7, "SETUID", "as SETGID"},
		{8, "SETPCAP", "daemons drop capabilities from their own bounding set"},
		{10, "NET_BIND_SERVICE", "servers on ports below 1024"},
		{13, "NET_RAW", "ping"},
		{18, "SYS_CHROOT", "debootstrap, sshd"},
		{29, "AUDIT_WRITE", "PAM writes to the audit log"},
		{31, "SETFCAP", "packages set capabilities of files"},
	}
}

// MachineCapabilities returns the set of capabilities that programs of a machine can have, for
// wire.Setup. Without SYS_ADMIN, SYS_RESOURCE, SYS_MODULE, SYS_BOOT, SYS_PTRACE and MKNOD they
// cannot change the bounds of the disk, replace the kernel, stop the machine, read the agent, or
// open the disk or the agent's port. CompilePrograms gives the filter that belongs to it.
func MachineCapabilities() (set uint64) {
	for _, c := range machineCapabilities() {
		set |= 1 << c.number
	}
	return set
}

// NetworkCapabilities is MachineCapabilities for a machine with outbound network. Without NET_RAW
// programs cannot send packets that the machine's kernel has not made.
func NetworkCapabilities() uint64 {
	const netRaw = 13
	return MachineCapabilities() &^ (1 << netRaw)
}
