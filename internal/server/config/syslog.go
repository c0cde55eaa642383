package config

import (
	"errors"
	"net"
	"net/url"
	"strings"
)

// SyslogAddress returns the network and the address of Audit.Syslog, for net.Dial.
func (a Audit) SyslogAddress() (network, address string, err error) { return syslogAddress(a.Syslog) }

func checkSyslog(s string) error {
	if s == "" {
		return nil
	}
	_, _, err := syslogAddress(s)
	return err
}

// syslogAddress splits the URL of a syslog server: unix:///dev/log, or udp or tcp with host and
// port. A port that is not there is 514, of tcp 601.
func syslogAddress(s string) (network, address string, err error) {
	u, err := url.Parse(s)
	if err != nil {
		return "", "", errors.New("is not a URL")
	}
	switch {
	case u.Scheme == "unix" && u.Host == "" && strings.HasPrefix(u.Path, "/"):
		return "unixgram", u.Path, nil
	case u.Scheme != "udp" && u.Scheme != "tcp" || u.Hostname() == "" || u.Path != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "", "", errors.New("is not unix:///PATH, udp://HOST:PORT or tcp://HOST:PORT")
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"udp": "514", "tcp": "601"}[u.Scheme]
	}
	return u.Scheme, net.JoinHostPort(u.Hostname(), port), nil
}
