package wire

// The files of FSCounters: limits and counters of a container's cgroup, of version 1 and of version
// 2. A container has one of the two.
const (
	MemoryLimit1 = iota
	MemoryPeak1
	MemoryOOM1
	CPUQuota1
	CPUTime1
	MemoryLimit2
	MemoryPeak2
	MemoryEvents2
	CPUQuota2
	CPUTime2
	Counters // their number
)

// CounterFiles returns the paths of the files of FSCounters, where container runtimes mount them.
func CounterFiles() [Counters]string {
	return [Counters]string{
		MemoryLimit1:  "/sys/fs/cgroup/memory/memory.limit_in_bytes",
		MemoryPeak1:   "/sys/fs/cgroup/memory/memory.max_usage_in_bytes",
		MemoryOOM1:    "/sys/fs/cgroup/memory/memory.oom_control",
		CPUQuota1:     "/sys/fs/cgroup/cpu/cpu.cfs_quota_us",
		CPUTime1:      "/sys/fs/cgroup/cpuacct/cpuacct.usage",
		MemoryLimit2:  "/sys/fs/cgroup/memory.max",
		MemoryPeak2:   "/sys/fs/cgroup/memory.peak",
		MemoryEvents2: "/sys/fs/cgroup/memory.events",
		CPUQuota2:     "/sys/fs/cgroup/cpu.max",
		CPUTime2:      "/sys/fs/cgroup/cpu.stat",
	}
}

// MaxCounterBytes is the most bytes of one file of FSCounters.
const MaxCounterBytes = 4096
