package testenv

import "os"

// TUN: this user can create TUN devices, which carry the outbound network of sandboxes.
var TUN = require("TUN", "as root: modprobe tun; chmod 0666 /dev/net/tun (in a container: pass the device)", func() error {
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
})
