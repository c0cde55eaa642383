package worker

func (p *programs) addShell() {}
