//go:build !linux

package testenv

import "errors"

var errNotLinux = errors.New("this is not Linux")

func checkUserNS() error    { return errNotLinux }
func checkCgroupV1() error  { return errNotLinux }
func checkCgroupV2() error  { return errNotLinux }
func checkPeakReset() error { return errNotLinux }
func checkFreezer() error   { return errNotLinux }
