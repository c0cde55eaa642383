package client

// PeakMemory is the most memory that the sandbox has held at once, its agent
// included, as the kernel counted it; 0 where nothing counts.
func (s *Sandbox) PeakMemory() int64 {
	if s.opt.Usage == nil {
		return 0
	}
	return s.opt.Usage().PeakMemory
}
