package policy

import (
	"strconv"

	"github.com/sandbar-dev/sandbar"
)

// A sandbox sees the entries of the host's /etc that programs need and that every user of the host
// can read. Left out on purpose:
//
//	shadow, gshadow, sudoers, ssh, ssl/private   secrets
//	docker, kubernetes, letsencrypt              keys
//	npmrc, pip.conf, gitconfig, maven            registry tokens
//	profile, profile.d, environment, bash.bashrc administrators export tokens there
//	python3.*, ld.so.preload                     hooks of the host (apport), not needed
//	passwd, group, hosts, hostname, resolv.conf, nsswitch.conf, machine-id
//	                                             written for each sandbox, see etcFiles

// etcRows are the read-only files and directories of the host's /etc in a sandbox. A pattern
// matches the names in the host's /etc.
func etcRows() []row {
	return []row{
		{"/etc/ld.so.cache", "the loader finds libraries outside its default directories by it: every program, and faster"},
		{"/etc/ld.so.conf", "compilers and ctypes.util.find_library ask ldconfig, which reads it"},
		{"/etc/ld.so.conf.d", "included by ld.so.conf"},
		{"/etc/ld-musl-x86_64.path", "the same on Alpine"},
		{"/etc/ld-musl-aarch64.path", "the same on Alpine"},
		{"/etc/alternatives", "on Debian and Fedora awk, cc, java, editors and BLAS are links through it"},
		{"/etc/ssl/certs", "certificate authorities: OpenSSL, Python's ssl, curl, Go; links to /usr/share/ca-certificates"},
		{"/etc/ssl/cert.pem", "the same in one file, on Alpine and Arch"},
		{"/etc/ssl/openssl.cnf", "OpenSSL's defaults; its commands complain without"},
		{"/etc/pki/tls/certs", "certificate authorities on Fedora"},
		{"/etc/pki/tls/cert.pem", "the same in one file"},
		{"/etc/pki/tls/openssl.cnf", "OpenSSL's defaults on Fedora"},
		{"/etc/pki/ca-trust/extracted", "what the links of pki/tls/certs lead to"},
		{"/etc/pki/java", "certificate authorities for Java on Fedora"},
		{"/etc/crypto-policies", "included by Fedora's openssl.cnf and read by GnuTLS"},
		{"/etc/ca-certificates/extracted", "what the links of ssl/certs lead to on Arch"},
		{"/etc/localtime", "the time zone: every libc"},
		{"/etc/timezone", "its name: Java, Node and Debian's tools"},
		{"/etc/os-release", "Python's platform, node-gyp and installers ask which system this is"},
		{"/etc/debian_version", "Python's distro package and lsb_release, on Debian"},
		{"/etc/mime.types", "Python's mimetypes and web servers"},
		{"/etc/services", "getservbyname: Python, Perl, BEAM's inet"},
		{"/etc/protocols", "getprotobyname"},
		{"/etc/perl", "stands in Perl's module path on Debian; XML::SAX and Net::Config are configured there"},
		{"/etc/java-*-openjdk", "Java's conf directory on Debian is a link to it; without java.security nothing starts"},
		{"/etc/java", "the same on Fedora"},
		{"/etc/fonts", "fontconfig: Java's AWT, ImageMagick, browsers, Cairo"},
	}
}

// textFile is a file that is written for one sandbox.
type textFile struct{ path, text, why string }

// etcFiles are the files of /etc that each sandbox has of its own. They contain no name of the
// host.
func etcFiles(o HostRootOptions) []textFile {
	files := []textFile{
		{"/etc/passwd", passwd(o), "getpwuid: Python's getpass and pathlib's home, git, ssh"},
		{"/etc/group", group(o), "getgrgid: ls, Python's grp"},
		{"/etc/hosts", "127.0.0.1\tlocalhost " + o.Hostname + "\n::1\tlocalhost ip6-localhost ip6-loopback\n", "localhost, and the sandbox's own name, which BEAM and Java look up"},
		{"/etc/hostname", o.Hostname + "\n", "read by installers and Java"},
		{"/etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files\nnetworks: files\nprotocols: files\nservices: files\n",
			"nothing but files is asked: no name service of the host, no DNS"},
		{"/etc/resolv.conf", "", "no name server: resolvers that ignore nsswitch.conf fail at once on the loopback"},
	}
	if o.MachineID != "" {
		files = append(files, textFile{"/etc/machine-id", o.MachineID + "\n", "D-Bus and Electron libraries; fresh for each sandbox"})
	}
	return files
}

const (
	nobody = 65534
	// shell is the user's login shell. POSIX systems have it at this path.
	shell = "/bin/sh"
)

// passwd has lines for the programs' user, root, and nobody, the owner that stat(2) reports for ids
// outside of the user namespace. The user's line comes first: lookups by id take the first match,
// so an id of 0 or 65534 is still the user.
func passwd(o HostRootOptions) string {
	uid, gid := strconv.FormatUint(uint64(o.UID), 10), strconv.FormatUint(uint64(o.GID), 10)
	s := "user:x:" + uid + ":" + gid + ":user:" + sandbar.DefaultDir + ":" + shell + "\n"
	if o.UID != 0 {
		s += "root:x:0:0:root:/:/usr/sbin/nologin\n"
	}
	if o.UID != nobody {
		s += "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n"
	}
	return s
}

func group(o HostRootOptions) string {
	s := "user:x:" + strconv.FormatUint(uint64(o.GID), 10) + ":\n"
	if o.GID != 0 {
		s += "root:x:0:\n"
	}
	if o.GID != nobody {
		s += "nogroup:x:65534:\n"
	}
	return s
}
