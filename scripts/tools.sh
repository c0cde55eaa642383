#!/bin/sh
# Fetches the tools of the tests and linters that this machine lacks.
#
#   scripts/tools.sh test    interpreters, bubblewrap, runc, crun, gVisor, a Docker
#                            Engine, QEMU and guest kernels, WebSocket clients from
#                            npm and PyPI, the SDKs of the executor, iii and E2B
#                            protocols, libraries of agents, a browser, an editor, Vite, IPython, Debian
#                            images, the test suites of toybox, busybox and awk
#   scripts/tools.sh race    a C compiler, for the race detector
#   scripts/tools.sh lint    staticcheck, govulncheck and the TypeScript compiler
#   scripts/tools.sh packages  nfpm, which makes deb and rpm packages
#   scripts/tools.sh bench   go-judge, with which "make bench" compares
#
# As root on a system with apt-get, Debian packages are installed; NO_APT=1 prevents
# it. All other tools go into .cache beside the sources. If a tool is not available,
# the script prints the reason, appends a line "Requirement<tab>reason" to
# .cache/tools.missing, and goes on and succeeds: the tests that need the tool are
# skipped with that reason (see internal/test/testenv). If nothing is missing, the
# script does nothing. A killed run leaves no partial tool: each tool is moved to its
# place when it is complete.
set -u

ws=8.23.0
websockets=15.0.1
# All dependencies of koyeb-sdk are pinned, so that a new release cannot change a test.
koyeb="koyeb-sdk==1.5.1 annotated-types==0.8.0 anyio==4.16.0 certifi==2026.10.18
	charset-normalizer==3.5.2 h11==0.16.0 httpcore==1.0.9 httpx==0.28.1 idna==3.20
	pydantic==2.14.3 pydantic-core==2.50.4 python-dateutil==4.0.0 requests==2.32.3
	typing-extensions==4.16.0 typing-inspection==0.4.5 tzdata==2026.6 urllib3==2.8.0
	websockets==17.4"
iii_npm=0.22.1
vite=6.4.6
iii_py="iii-sdk==0.25.0 iii-helpers==0.25.0 annotated-types==0.8.0 anyio==4.16.0
	certifi==2026.10.18 h11==0.16.0 httpcore==1.0.9 httpx==0.28.1 idna==3.20
	opentelemetry-api==1.45.2 opentelemetry-sdk==1.45.2 opentelemetry-semantic-conventions==0.66b2
	pydantic==2.14.3 pydantic-core==2.50.4 typing-extensions==4.16.0 typing-inspection==0.4.5
	websockets==17.4"
ipython="ipython==9.18.1 asttokens==3.0.2 executing==2.3.0 ipython-pygments-lexers==1.1.1
	jedi==0.20.1 matplotlib-inline==0.2.2 parso==0.8.7 pexpect==4.9.0 prompt-toolkit==3.0.53
	psutil==7.2.2 ptyprocess==0.7.0 pure-eval==0.2.4 pygments==2.21.0 stack-data==0.6.3
	traitlets==5.16.1 typing-extensions==4.16.0 wcwidth==0.9.4"
e2b_npm="e2b@2.51.0 @e2b/code-interpreter@2.8.0"
e2b_py="e2b==2.63.0 e2b-code-interpreter==2.11.5 anyio==4.16.0 attrs==26.1.0 bracex==3.2.3
	certifi==2026.10.18 connectrpc==0.12.1 e2b-dockerfile-utils==0.1.1 h11==0.16.0 h2==4.4.1
	hpack==4.2.0 httpcore==1.0.9 httpx==0.28.1 hyperframe==6.1.0 idna==3.20
	markdown-it-py==4.3.0 mdurl==0.1.2 opentelemetry-api==1.45.2 packaging==26.4
	protobuf-py==0.6.0 protobuf-py-ext==0.6.0 pygments==2.21.0 pyqwest==0.12.0
	python-dateutil==4.0.0 rich==15.0.0 typing-extensions==4.16.0 tzdata==2026.6 wcmatch==11.2"
# The command line of the Model Context Protocol's inspector, and the protocol's SDKs.
mcp_npm="@modelcontextprotocol/sdk@1.32.2 @modelcontextprotocol/inspector-cli@1.0.3"
mcp_py="mcp==2.3.0 mcp-types==2.3.0 annotated-types==0.8.0 anyio==4.16.0 attrs==26.1.0
	cffi==2.1.1 click==8.5.1 cryptography==50.0.2 h11==0.16.0 httpcore2==2.16.2 httpx2==2.16.2
	idna==3.20 jsonschema==4.26.0 jsonschema-specifications==2025.9.1 opentelemetry-api==1.45.2
	pycparser==3.12 pydantic==2.14.4 pydantic-core==2.50.5 pyjwt==2.15.1
	python-multipart==0.0.34 referencing==0.37.0 rpds-py==2026.9.1 sse-starlette==3.7.0
	starlette==1.10.0 truststore==0.10.5 typing-extensions==4.16.0 typing-inspection==0.4.5
	uvicorn==0.54.0"
# Libraries of agents that examples/adapters gives tools to. They need fewer packages than they
# declare: these are the ones that they import.
agents_npm="ai@6.0.325 zod@4.6.7"
agents_py="langchain-core==1.8.3 smolagents==1.26.0 annotated-types==0.8.0 anyio==4.16.0
	certifi==2026.10.18 charset-normalizer==3.5.2 filelock==4.3.1 h11==0.16.0
	httpcore2==2.16.2 httpx2==2.16.2 huggingface-hub==2.4.0 idna==3.20 jinja2==3.1.6
	jsonpatch==1.48 jsonpointer==3.12 langsmith==0.15.1 markdown-it-py==4.3.0
	markupsafe==3.0.4 mdurl==0.1.2 packaging==26.4 pillow==13.0.0 pydantic==2.14.4
	pydantic-core==2.50.5 pygments==2.21.0 python-dotenv==1.2.4 pyyaml==6.0.4
	requests==2.32.3 requests-toolbelt==1.0.0 rich==15.0.0 sniffio==1.3.1 tenacity==9.2.1
	tqdm==4.70.1 truststore==0.10.5 typing-extensions==4.16.0 typing-inspection==0.4.5
	urllib3==2.8.0 uuid-utils==0.19.0 xxhash==4.1.0"
runsc=v0.0.0-20260905035102-160fafc42237
# Wheels that tests install from files in a sandbox, with the pip that installs them, or unpack.
wheels="pip==26.3 numpy==2.4.6 pandas==3.1.1 python-dateutil==4.0.0 tzdata==2026.6
	matplotlib==3.11.2 contourpy==1.3.3 cycler==0.12.1 fonttools==4.68.0 kiwisolver==1.5.1
	packaging==26.4 pillow==13.0.0 pyparsing==3.3.3 six==1.17.0
	httpx==0.28.1 httpcore==1.0.9 h11==0.16.0 anyio==4.16.0 idna==3.20 certifi==2026.10.18
	typing-extensions==4.16.0"
typescript="typescript@5.9.3 @types/node@20.19.43 undici-types@6.21.0"
staticcheck=v0.8.2
govulncheck=v1.8.0
nfpm=v2.43.0
judge=v1.8.5
image_packages=python3,python3-pip
# Source archives of Debian's pool with the test suites of other shells and utilities:
# path below pool/main, directories to unpack, SHA-256 of the archive.
suites="t/toybox/toybox_0.8.9+dfsg.orig.tar.xz tests 16fb5967531e88ca33b8c9142376987617ebe52e34e2b3f3a779603674b7d07c
b/busybox/busybox_1.35.0.orig.tar.bz2 testsuite,shell/ash_test faeeb244c35a348a334f4a59e44626ee870fb07b6884d68c10ae8bc19f83a694
o/original-awk/original-awk_2022-09-12.orig.tar.gz testdir 25e0846d5a4a20e90304bee282b068f65966406178a1e737fa0ac6744aef71d9"

root=$(cd "$(dirname "$0")/.." && pwd) || exit 1
cache=${TESTENV_CACHE:-$root/.cache}
mkdir -p "$cache" || exit 1

say() { echo "tools: $*" >&2; }

# One run at a time; the kernel drops the lock when the process exits. Without flock,
# concurrent runs only repeat work.
if command -v flock >/dev/null 2>&1; then
	exec 9>"$cache/tools.lock"
	flock -w 900 9 || { say "another run has held $cache/tools.lock for 15 minutes"; exit 1; }
fi

tmp=$cache/tools.tmp
rm -rf "$tmp"
mkdir "$tmp" || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM

# lack REQUIREMENT REASON…
lack() {
	name=$1
	shift
	printf '%s\t%s\n' "$name" "$*" >>"$tmp/missing"
	say "no $name: $*"
}

# there PROGRAM succeeds if a program exists, given by path or by name in PATH.
there() {
	case $1 in
	/*) [ -x "$1" ] ;;
	*) command -v "$1" >/dev/null 2>&1 ;;
	esac
}

# place FROM TO moves a finished directory to TO and replaces an older one.
place() {
	mkdir -p "$(dirname "$2")" || return 1
	if [ -e "$2" ]; then mv "$2" "$tmp/old.$$" || return 1; fi
	mv "$1" "$2" || return 1
	rm -rf "$tmp/old.$$"
}

# ---- Debian packages

# why_no_apt prints why packages cannot be installed; it fails if they can.
why_no_apt() {
	if [ -n "${NO_APT:-}" ]; then echo "not installed, and NO_APT is set"
	elif ! command -v apt-get >/dev/null 2>&1; then echo "not installed, and this is not a Debian-like system"
	elif [ "$(id -u)" -ne 0 ]; then echo "not installed, and only root can install packages"
	else return 1
	fi
}

# --no-remove: no installed package is removed for a missing one.
apt_install() {
	DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends --no-remove \
		-o DPkg::Lock::Timeout=300 -o Acquire::Retries=2 "$@" >>"$tmp/apt.log" 2>&1 9>&-
}

apt_update() {
	[ -e "$tmp/updated" ] && return
	: >"$tmp/updated"
	apt-get update -qq -o Acquire::Retries=2 >>"$tmp/apt.log" 2>&1 9>&-
}

# debian PACKAGE… installs packages together, or if that fails one by one, so that an
# unavailable package does not prevent the others.
debian() {
	say "installing $*"
	apt_install "$@" && return
	apt_update
	apt_install "$@" && return
	[ $# -gt 1 ] || return 1
	for package in "$@"; do apt_install "$package"; done
}

# no_services prevents packages from starting their services (policy-rc.d); the tests
# start their own instances. An existing rule of the host stays. services undoes it.
policy=/usr/sbin/policy-rc.d
no_services() {
	[ -e $policy ] && return
	trap 'services; rm -rf "$tmp"' EXIT
	printf '#!/bin/sh\n# for the time of one scripts/tools.sh\nexit 101\n' >$policy && chmod 755 $policy
	: >"$tmp/policy"
}
services() {
	[ -e "$tmp/policy" ] && rm -f $policy "$tmp/policy"
	return 0
}

# programs reads lines of "Requirement program package" and installs missing packages.
programs() {
	packages=
	while read -r name program package; do
		there "$program" || packages="$packages $package"
	done <"$1"
	# shellcheck disable=SC2086 # a list of words
	if [ -n "$packages" ] && ! why_no_apt >/dev/null; then
		no_services
		debian $packages
		services
	fi
	while read -r name program package; do
		there "$program" && continue
		if reason=$(why_no_apt); then lack "$name" "$program is $reason"
		else lack "$name" "package $package could not be installed: $(tail -n 1 "$tmp/apt.log")"
		fi
	done <"$1"
}

# ---- npm and PyPI

npm_ws() {
	[ "$(cat "$cache/npm/wanted" 2>/dev/null)" = "ws $ws" ] && return
	mkdir "$tmp/npm" || return
	if there npm; then
		say "fetching ws $ws"
		(cd "$tmp/npm" && npm install --prefix . --fetch-retries 1 --no-save --ignore-scripts --no-audit --no-fund "ws@$ws") >"$tmp/log" 2>&1
	elif ! why_no_apt >/dev/null && debian node-ws; then
		# npm itself would be hundreds of packages; the distribution's ws does.
		mkdir "$tmp/npm/node_modules" && cp -RL /usr/share/nodejs/ws "$tmp/npm/node_modules/ws" 2>"$tmp/log"
	else
		lack NpmWS "there is no npm"
		return
	fi
	if [ -f "$tmp/npm/node_modules/ws/package.json" ]; then
		echo "ws $ws" >"$tmp/npm/wanted"
		place "$tmp/npm" "$cache/npm"
	else
		lack NpmWS "ws could not be fetched: $(grep -i error "$tmp/log" | head -n 1)"
	fi
}

# npm_sdk REQUIREMENT DIRECTORY PACKAGE@VERSION… fetches packages with their dependencies.
npm_sdk() {
	name=$1 dir=$2
	shift 2
	[ "$(cat "$cache/$dir/wanted" 2>/dev/null)" = "$*" ] && return
	if ! there npm; then
		lack "$name" "there is no npm"
		return
	fi
	say "fetching $*"
	mkdir "$tmp/$dir" || return
	if (cd "$tmp/$dir" && npm install --prefix . --fetch-retries 1 --no-save --ignore-scripts --no-audit --no-fund "$@") >"$tmp/log" 2>&1; then
		echo "$*" >"$tmp/$dir/wanted"
		place "$tmp/$dir" "$cache/$dir"
	else
		lack "$name" "$1 could not be fetched: $(grep -i error "$tmp/log" | head -n 1)"
	fi
}

# python_with_pip prints an interpreter that has pip, of any version: it only downloads a
# pure Python package for another interpreter.
python_with_pip() {
	for python in /usr/bin/python3 python3; do
		"$python" -m pip --version >/dev/null 2>&1 && { echo "$python"; return; }
	done
	return 1
}

py_websockets() {
	[ -d "$cache/py/websockets-$websockets.dist-info" ] && return
	python=$(python_with_pip) || { ! why_no_apt >/dev/null && debian python3-pip && python=$(python_with_pip); } || {
		lack PyWebsockets "there is no pip"
		return
	}
	say "fetching websockets $websockets"
	"$python" -m pip install --quiet --disable-pip-version-check --no-input --retries 1 --timeout 60 --no-deps \
		--only-binary=:all: --implementation py --abi none --platform any \
		--target "$tmp/py" "websockets==$websockets" >"$tmp/log" 2>&1
	if [ -d "$tmp/py/websockets-$websockets.dist-info" ]; then
		place "$tmp/py" "$cache/py"
	else
		lack PyWebsockets "websockets could not be fetched: $(grep -i error "$tmp/log" | tail -n 1)"
	fi
}

# py_sdk REQUIREMENT DIRECTORY PACKAGE==VERSION… fetches packages, possibly with native
# code, for /usr/bin/python3, which may lack pip.
py_sdk() {
	name=$1 dir=$cache/$2
	shift 2
	version=$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
	[ "$(cat "$dir/wanted" 2>/dev/null)" = "$version $*" ] && return
	python=$(python_with_pip) || { ! why_no_apt >/dev/null && debian python3-pip && python=$(python_with_pip); } || {
		lack "$name" "there is no pip"
		return
	}
	say "fetching $1"
	if "$python" -m pip install --quiet --disable-pip-version-check --no-input --retries 1 --timeout 60 --no-deps --no-compile \
		--only-binary=:all: --implementation cp --python-version "$version" --abi "cp$(echo "$version" | tr -d .)" --abi abi3 --abi none \
		--platform "manylinux_2_28_$(uname -m)" --platform "manylinux_2_17_$(uname -m)" --platform "manylinux2014_$(uname -m)" --platform any \
		--target "$tmp/sdk" "$@" >"$tmp/log" 2>&1; then
		# For this interpreter, once, and so that a copy with other times is good too: the tests
		# import these packages dozens of times.
		/usr/bin/python3 -m compileall -q -j 2 --invalidation-mode unchecked-hash "$tmp/sdk" >"$tmp/log" 2>&1
		echo "$version $*" >"$tmp/sdk/wanted"
		place "$tmp/sdk" "$dir"
	else
		lack "$name" "$1 could not be fetched: $(grep -i error "$tmp/log" | tail -n 1)"
	fi
}

# py_wheels fetches wheels for /usr/bin/python3 without unpacking them.
py_wheels() {
	version=$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
	[ "$(cat "$cache/wheels/wanted" 2>/dev/null)" = "$version $wheels" ] && return
	python=$(python_with_pip) || { ! why_no_apt >/dev/null && debian python3-pip && python=$(python_with_pip); } || {
		lack PyWheels "there is no pip"
		return
	}
	say "fetching wheels of numpy, pandas and matplotlib"
	machine=$(uname -m)
	# shellcheck disable=SC2086 # a list of words
	if "$python" -m pip download --quiet --disable-pip-version-check --no-input --retries 1 --timeout 60 --no-deps \
		--only-binary=:all: --implementation cp --python-version "$version" --abi "cp$(echo "$version" | tr -d .)" --abi none \
		--platform "manylinux_2_28_$machine" --platform "manylinux_2_27_$machine" --platform "manylinux_2_24_$machine" \
		--platform "manylinux2014_$machine" --platform any --dest "$tmp/wheels" $wheels >"$tmp/log" 2>&1; then
		echo "$version $wheels" >"$tmp/wheels/wanted"
		place "$tmp/wheels" "$cache/wheels"
	else
		lack PyWheels "numpy, pandas and matplotlib could not be fetched: $(grep -i error "$tmp/log" | tail -n 1)"
	fi
}

# ---- the guest kernel

# guest_kernel NAME DIR [PACKAGE...]
guest_kernel() {
	[ -x scripts/qemu-kernel.sh ] || return
	name=$1
	shift
	if sh scripts/qemu-kernel.sh "$@" >"$tmp/log" 2>&1 9>&-; then return; fi
	# The lists of packages may be older than what the servers keep.
	if ! why_no_apt >/dev/null; then
		apt_update
		if sh scripts/qemu-kernel.sh "$@" >"$tmp/log" 2>&1 9>&-; then return; fi
	fi
	lack "$name" "the guest kernel could not be fetched: $(tail -n 1 "$tmp/log")"
}

# ---- the guest kernel of the driver vm

# vm_kernel prepares the kernel as "sandbar vm setup" does.
vm_kernel() {
	[ -f "$cache/vm/kernel/kernel.json" ] && return
	there go || { lack VMKernel "there is no Go tool to prepare the guest kernel with"; return; }
	mkdir -p "$cache/vm"
	say "preparing the guest kernel of the driver vm"
	if vm_setup; then return; fi
	# The lists of packages may be older than what the servers keep.
	if ! why_no_apt >/dev/null; then
		apt_update
		if vm_setup; then return; fi
	fi
	lack VMKernel "the guest kernel could not be prepared: $(tail -n 1 "$tmp/log")"
}
vm_setup() {
	go run ./cmd/sandbar vm setup --kernel-only --cache "$cache/vm" >"$tmp/log" 2>&1 9>&- && chmod -R a+rX "$cache/vm/kernel"
}

# ---- qemu and a root for the driver vm

# new_qemu PROGRAM succeeds if it is qemu 8.2 or later.
new_qemu() {
	version=$("$1" --version 2>/dev/null | sed -n 's/^QEMU emulator version \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
	[ -n "$version" ] && [ "${version% *}" -ge 8 ] && { [ "${version% *}" -gt 8 ] || [ "${version#* }" -ge 2 ]; }
}

# vm_qemu unpacks qemu of Debian's backports into vm-qemu, unless this machine's own is new enough.
# The machine's packages and lists are not changed.
vm_qemu() {
	new_qemu qemu-system-x86_64 && return
	new_qemu "$cache/vm-qemu/usr/bin/qemu-system-x86_64" && return
	# shellcheck disable=SC1091 # there on every Debian
	release=$(. /etc/os-release 2>/dev/null && [ "$ID" = debian ] && echo "$VERSION_CODENAME")
	if [ -z "$release" ] || ! there apt-get; then
		lack VM "qemu-system-x86_64 is older than 8.2, and this is not Debian, which has a newer one in its backports"
		return
	fi
	say "fetching qemu of $release-backports"
	apt=$tmp/apt
	mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$tmp/vm-qemu"
	mirror=$(debian_mirrors | grep -v '^$' | head -n 1)
	[ -n "$mirror" ] || { lack VM "apt has no Debian source on this machine"; return; }
	for suite in "$release" "$release-backports"; do
		echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main"
	done >"$apt/sources.list"
	cat >"$apt/conf" <<-END
		APT::Sandbox::User "";
		Acquire::Languages "none";
		Acquire::Retries "2";
		Dir::State "$apt";
		Dir::State::lists "$apt/lists";
		Dir::State::status "/var/lib/dpkg/status";
		Dir::Cache "$apt";
		Dir::Etc::sourcelist "$apt/sources.list";
		Dir::Etc::sourceparts "/dev/null";
		Debug::NoLocking "true";
	END
	if APT_CONFIG=$apt/conf apt-get update -qq >"$tmp/log" 2>&1 9>&- &&
		APT_CONFIG=$apt/conf apt-get install -qq -y --download-only --no-install-recommends -t "$release-backports" qemu-system-x86 >"$tmp/log" 2>&1 9>&-; then
		for deb in "$apt"/archives/*.deb; do dpkg-deb -x "$deb" "$tmp/vm-qemu" 2>"$tmp/log" || break; done
		if new_qemu "$tmp/vm-qemu/usr/bin/qemu-system-x86_64"; then
			chmod -R a+rX "$tmp/vm-qemu"
			place "$tmp/vm-qemu" "$cache/vm-qemu"
			return
		fi
	fi
	lack VM "qemu could not be fetched: $(tail -n 1 "$tmp/log")"
}

# vm_root builds the root file system of machines from the Debian image.
vm_root() {
	if [ -f "$cache/vm/debian.erofs" ] && [ "$cache/vm/debian.erofs" -nt "$cache/images/debian.tar" ]; then return; fi
	[ -f "$cache/images/debian.tar" ] || { lack VM "there is no Debian image"; return; }
	there go || { lack VM "there is no Go tool to build the root file system with"; return; }
	say "building the root file system of machines"
	if go build -o "$tmp/sandbar" ./cmd/sandbar >"$tmp/log" 2>&1 9>&- &&
		SANDBAR_STATE_DIR=$tmp/state "$tmp/sandbar" images import "$cache/images/debian.tar" debian >"$tmp/log" 2>&1 9>&- &&
		SANDBAR_STATE_DIR=$tmp/state "$tmp/sandbar" vm setup --image debian --cache "$cache/vm" --json >"$tmp/vm.json" 2>"$tmp/log" 9>&-; then
		digest=$(grep -oE '"digest": *"[0-9a-f]{16}' "$tmp/vm.json" | tail -n 1 | grep -oE '[0-9a-f]{16}$')
		for end in .json ""; do
			ln -f "$cache/vm/roots/root-$digest.erofs$end" "$cache/vm/debian.erofs$end" || break
		done && chmod a+rx "$cache/vm" && chmod a+r "$cache/vm/debian.erofs.json" && touch "$cache/vm/debian.erofs" && return
	fi
	lack VM "the root file system could not be built: $(tail -n 1 "$tmp/log")"
}

# ---- an image for the PC

v86_image() {
	if sh scripts/v86-image.sh >"$tmp/log" 2>&1 9>&-; then return; fi
	lack V86 "the image could not be built: $(tail -n 1 "$tmp/log")"
}

# ---- an image

# debian_image makes a Debian root file system with Python by mmdebstrap, from the mirror
# of this machine's apt.
debian_image() {
	# shellcheck disable=SC1091 # there on every Debian
	release=$(. /etc/os-release 2>/dev/null && [ "$ID" = debian ] && echo "$VERSION_CODENAME")
	wanted="${release:-stable} $image_packages"
	[ -f "$cache/images/debian.tar" ] && [ "$(cat "$cache/images/wanted" 2>/dev/null)" = "$wanted" ] && return
	if ! there mmdebstrap; then
		if reason=$(why_no_apt); then lack DebianImage "mmdebstrap is $reason"; return; fi
		debian mmdebstrap || { lack DebianImage "package mmdebstrap could not be installed: $(tail -n 1 "$tmp/apt.log")"; return; }
	fi
	if [ "$(id -u)" -ne 0 ]; then lack DebianImage "only root can make it"; return; fi
	say "making an image of Debian ${release:-stable}"
	mkdir "$tmp/images" || return
	if timeout 900 mmdebstrap --quiet --variant=essential --include="$image_packages" \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/man/*' \
		"${release:-stable}" "$tmp/images/debian.tar" >"$tmp/log" 2>&1 </dev/null 9>&-; then
		echo "$wanted" >"$tmp/images/wanted"
		place "$tmp/images" "$cache/images"
	else
		lack DebianImage "mmdebstrap failed: $(grep -i '^E:' "$tmp/log" | head -n 1)"
	fi
}

# ---- test suites of other shells and utilities

# debian_mirrors prints the Debian mirrors of DEBIAN_MIRROR and apt.
debian_mirrors() {
	echo "${DEBIAN_MIRROR:-}"
	cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | grep -v '^ *#' | grep -oE 'https?://[^ ]+/debian/?( |$)'
}

# shell_suites unpacks the test suites into suites/NAME; nothing in them is compiled.
shell_suites() {
	[ "$(cat "$cache/suites/wanted" 2>/dev/null)" = "$suites" ] && return
	there curl || { lack ShellSuites "there is no curl"; return; }
	mkdir "$tmp/suites" || return
	echo "$suites" >"$tmp/suites.list"
	while read -r file directories sum; do
		name=$(basename "$(dirname "$file")")
		archive=$tmp/$(basename "$file")
		say "fetching the test suite of $name"
		for mirror in $(debian_mirrors); do
			curl -fsSL --connect-timeout 20 --max-time 300 -o "$archive" "${mirror%/}/pool/main/$file" 2>"$tmp/log" </dev/null && break
		done
		if [ "$(sha256sum "$archive" 2>/dev/null | cut -d ' ' -f 1)" != "$sum" ]; then
			lack ShellSuites "$name could not be fetched or has another checksum: $(tail -n 1 "$tmp/log")"
			return
		fi
		mkdir "$tmp/suites/$name"
		patterns=$(echo "$directories" | tr , '\n' | sed 's,^,*/,')
		# shellcheck disable=SC2086 # a list of patterns, which tar expands
		if ! (set -f; tar -xf "$archive" -C "$tmp/suites/$name" --strip-components=1 --no-same-owner --wildcards $patterns) 2>"$tmp/log"; then
			lack ShellSuites "$name could not be unpacked: $(tail -n 1 "$tmp/log")"
			return
		fi
	done <"$tmp/suites.list"
	chmod -R a+rX "$tmp/suites"
	echo "$suites" >"$tmp/suites/wanted"
	place "$tmp/suites" "$cache/suites"
}

# ---- Go programs

# go_tool NAME PACKAGE VERSION
go_tool() {
	[ -x "$cache/bin/$1" ] && [ "$(cat "$cache/bin/$1.version" 2>/dev/null)" = "$3" ] && return
	say "building $1 $3"
	mkdir -p "$tmp/bin" "$cache/bin"
	if env -u GOOS -u GOARCH GOBIN="$tmp/bin" GOFLAGS= CGO_ENABLED=0 go install "$2@$3" >"$tmp/log" 2>&1; then
		mv "$tmp/bin/$1" "$cache/bin/$1" && echo "$3" >"$cache/bin/$1.version"
	else
		say "no $1: $(tail -n 1 "$tmp/log")"
		return 1
	fi
}

# go_judge builds go-judge. "go install" would ask for the list of its versions, which mirrors may lack.
go_judge() {
	[ -x "$cache/bin/go-judge" ] && [ "$(cat "$cache/bin/go-judge.version" 2>/dev/null)" = "$judge" ] && return
	say "building go-judge $judge"
	mkdir -p "$tmp/judge" "$cache/bin"
	printf 'module judge\n\ngo 1.22\n\nrequire github.com/criyle/go-judge %s\n' "$judge" >"$tmp/judge/go.mod"
	printf '//go:build tools\n\npackage judge\n\nimport _ "github.com/criyle/go-judge/cmd/go-judge"\n' >"$tmp/judge/judge.go"
	if (cd "$tmp/judge" && env -u GOOS -u GOARCH GOFLAGS=-mod=mod CGO_ENABLED=0 go build -o go-judge github.com/criyle/go-judge/cmd/go-judge) >"$tmp/log" 2>&1; then
		mv "$tmp/judge/go-judge" "$cache/bin/go-judge" && echo "$judge" >"$cache/bin/go-judge.version"
	else
		say "no go-judge, with which \"make bench\" compares: $(tail -n 1 "$tmp/log")"
	fi
}

cd "$root" || exit 1
: >"$tmp/missing"
case ${1:-} in
test)
	cat >"$tmp/programs" <<-'END'
		Python /usr/bin/python3 python3
		Node /usr/bin/node nodejs
		Elixir /usr/bin/elixir elixir
		Bubblewrap bwrap bubblewrap
		Runc runc runc
		Crun crun crun
		Docker dockerd docker.io
		DockerCLI docker docker.io
		Git git git
		Dpkg dpkg dpkg
		Curl curl curl
		JQ jq jq
		CC /usr/bin/gcc gcc libc6-dev
		SQLite /usr/bin/sqlite3 sqlite3
		Chromium chromium chromium
		Tmux tmux tmux
		Vim /usr/bin/vim vim
	END
	case $(uname -m) in
	x86_64) echo "QEMU qemu-system-x86_64 qemu-system-x86" >>"$tmp/programs" ;;
	*) lack QEMU "there is a guest for x86_64 only" ;;
	esac
	programs "$tmp/programs"
	if there /usr/bin/node; then
		there /usr/bin/npm || lack Npm "there is no /usr/bin/npm"
		npm_ws
		npm_sdk NpmIII iii-npm "iii-sdk@$iii_npm"
		npm_sdk NpmVite vite "vite@$vite"
		# shellcheck disable=SC2086 # a list of words
		npm_sdk NpmTypeScript typescript $typescript
		# shellcheck disable=SC2086 # a list of words
		npm_sdk NpmE2B e2b-npm $e2b_npm
		# shellcheck disable=SC2086 # a list of words
		npm_sdk NpmMCP mcp-npm $mcp_npm
		# shellcheck disable=SC2086 # a list of words
		npm_sdk NpmAgents agents-npm $agents_npm
		# The inspector's command line reads its version from this file of the package around it.
		npm_mcp=$cache/mcp-npm/node_modules/@modelcontextprotocol
		[ ! -d "$npm_mcp" ] || cp "$npm_mcp/inspector-cli/package.json" "$npm_mcp/package.json"
	else
		for name in Npm NpmWS NpmIII NpmVite NpmTypeScript NpmE2B NpmMCP NpmAgents; do
			lack "$name" "there is no /usr/bin/node"
		done
	fi
	if there /usr/bin/python3; then
		py_websockets
		# shellcheck disable=SC2086 # a list of words
		py_sdk PyKoyeb koyeb $koyeb
		# shellcheck disable=SC2086 # a list of words
		py_sdk PyIII iii-py $iii_py
		# shellcheck disable=SC2086 # a list of words
		py_sdk PyIPython ipython $ipython
		# shellcheck disable=SC2086 # a list of words
		py_sdk PyE2B e2b-py $e2b_py
		# shellcheck disable=SC2086 # a list of words
		py_sdk PyMCP mcp-py $mcp_py
		# shellcheck disable=SC2086 # a list of words
		py_sdk PyAgents agents-py $agents_py
		py_wheels
	else
		for name in PyWebsockets PyKoyeb PyIII PyIPython PyE2B PyMCP PyAgents PyWheels; do
			lack "$name" "there is no /usr/bin/python3"
		done
	fi
	if there qemu-system-x86_64; then
		guest_kernel QEMU "$cache/qemu"
		# Debian 12 has two, and later ones only a newer one.
		guest_kernel QEMUNewer "$cache/qemu-newer" linux-image-6.12-amd64 linux-image-amd64
		vm_kernel
	else
		lack QEMUNewer "there is no qemu-system-x86_64"
		lack VMKernel "there is no qemu-system-x86_64"
	fi
	v86_image
	debian_image
	if there qemu-system-x86_64; then
		vm_qemu
		vm_root
	else
		lack VM "there is no qemu-system-x86_64"
	fi
	shell_suites
	if ! there go; then lack Runsc "there is no Go tool to build it with"
	else go_tool runsc gvisor.dev/gvisor/runsc $runsc || lack Runsc "it could not be built: $(tail -n 1 "$tmp/log")"
	fi
	if ! there go; then lack Nfpm "there is no Go tool to build it with"
	else go_tool nfpm github.com/goreleaser/nfpm/v2/cmd/nfpm $nfpm || lack Nfpm "it could not be built: $(tail -n 1 "$tmp/log")"
	fi
	if [ "${CONSOLE:-1}" = 0 ]; then
		lack NpmConsole "CONSOLE=0 is set"
		lack NpmAxe "CONSOLE=0 is set"
	elif ! sh scripts/console.sh test 2>"$tmp/log" 9>&-; then
		lack NpmConsole "$(head -n 1 "$tmp/log")"
		lack NpmAxe "$(head -n 1 "$tmp/log")"
	fi
	if [ "${WASM:-1}" = 0 ]; then
		lack WasmModules "WASM=0 is set"
		lack V86 "WASM=0 is set"
	elif ! sh scripts/wasm.sh 2>"$tmp/log" 9>&-; then
		lack WasmModules "$(head -n 1 "$tmp/log")"
		lack V86 "$(head -n 1 "$tmp/log")"
	fi
	mv "$tmp/missing" "$cache/tools.missing"
	;;
race)
	if ! there cc; then
		if reason=$(why_no_apt); then say "cc is $reason"; else debian gcc libc6-dev; fi
	fi
	;;
packages)
	go_tool nfpm github.com/goreleaser/nfpm/v2/cmd/nfpm $nfpm
	;;
bench)
	go_judge
	;;
lint)
	go_tool staticcheck honnef.co/go/tools/cmd/staticcheck $staticcheck
	go_tool govulncheck golang.org/x/vuln/cmd/govulncheck $govulncheck
	# shellcheck disable=SC2086 # a list of words
	npm_sdk NpmTypeScript typescript $typescript
	;;
*)
	say "usage: scripts/tools.sh test|race|lint|packages|bench"
	exit 2
	;;
esac
