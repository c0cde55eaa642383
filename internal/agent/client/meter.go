package client

// PeakMemory returns the sandbox's peak memory in bytes, its agent included, as the kernel counted
// it; 0 if nothing counts it.
func (s *Sandbox) PeakMemory() int64 {
	if s.opt.Usage == nil {
		return 0
	}
	return s.opt.Usage().PeakMemory
}
