package testenv

import "os"

// TUN: this user may make TUN devices, which are the network of sandboxes that
// reach out.
var TUN = require("TUN", "as root: modprobe tun; chmod 0666 /dev/net/tun (in a container: give it the device)", func() error {
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
})
