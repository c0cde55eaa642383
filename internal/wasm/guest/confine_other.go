package guest

func confine() error { return nil }
