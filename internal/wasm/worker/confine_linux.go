package worker

func confine() error { return nil }
