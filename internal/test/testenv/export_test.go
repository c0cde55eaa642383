package testenv

// Fake makes a requirement that is met when err is nil.
func Fake(name, how string, err error) Requirement {
	return require(name, how, func() error { return err })
}
