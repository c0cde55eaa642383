# What can be done with this tree. "make help" lists it.
#
# Needed: Go and make; a C compiler only for the race detector. As root on a
# Debian-like system "make test" installs what the tests use besides
# (scripts/tools.sh tells what; NO_APT=1 forbids it).

VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
FUZZTIME ?= 10s
# Packages to test, and tests to run in them: make test PKGS=./engine RUN=TestQueue
PKGS     ?= ./...
RUN      ?=

# 0 builds without the driver wasm and the modes simple and v86.
WASM     ?= 1

export CGO_ENABLED = 0
export WASM

RUNNER      = .cache/bin/runner
RUNNERFLAGS = $(if $(RACE),-race) $(if $(RUN),-run '$(RUN)') $(if $(P),-p $(P)) -summary .cache/summary
# These run on this machine even when GOOS or GOARCH name another.
HOST        = env -u GOOS -u GOARCH

.PHONY: help build demo test test-all test-user race lint fuzz bench packages soak kills security tools clean vet runner

help: ## list what can be made
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

build: ## bin/sandbar, which carries the agent and the WebAssembly modules, and bin/sandbar-agent (WASM=0: without the modules)
	@sh scripts/build.sh $(VERSION)

# A first build takes minutes, so it shows what it can on its way.
demo: ## watch untrusted programs run, stream and be contained; then build
	@sh scripts/build.sh $(VERSION) demo

test: build tools vet runner ## all tests; as root, then also those of an ordinary user (RACE=1: with the race detector)
	@$(RUNNER) $(RUNNERFLAGS) $(PKGS)

test-all: ## all tests, and the cases that are too long for "make test"
	@TESTENV_LONG=1 $(MAKE) --no-print-directory test

test-user: build tools runner ## the tests as an ordinary user (as root: as one that is made up)
	@$(RUNNER) $(RUNNERFLAGS) -user $(PKGS)

race: runner ## all tests with the race detector
	@sh scripts/tools.sh race
	@$(MAKE) --no-print-directory test RACE=1

lint: ## gofmt, go vet for every platform, staticcheck, govulncheck
	@sh scripts/lint.sh

fuzz: ## every fuzz target for FUZZTIME (10s)
	@sh scripts/fuzz.sh $(FUZZTIME) $(PKGS)

bench: build tools ## the numbers of SPECIFICATION.md
	@# With the agent that is built, as bin/sandbar has it: started as an agent,
	@# the benchmark's own large program would be measured.
	@$(HOST) go run -tags embedagent ./bench

TIME ?= 10m

packages: build ## a deb and an rpm package of bin/sandbar, in bin
	@sh scripts/packages.sh $(VERSION)

soak: build tools ## load a daemon with everything for TIME (10m), and tell what grew
	@$(HOST) go run -tags embedagent ./bench -soak $(TIME)

N ?= 200

kills: build tools ## kill a daemon under load N times (200), and tell what was left
	@KILLS=$(N) $(HOST) go test -count=1 -timeout 24h -run '^TestKilledDaemon$$' -v ./internal/test/e2e

DRIVERS ?= native local
FUZZ ?= 4s

security: build tools ## attack this host with every driver of DRIVERS, native in every role, random system calls for FUZZ (4s), and write the tables of SECURITY.md
	@mkdir -p .cache/escape
	@! [ -f .cache/images/debian.tar ] || SANDBAR_STATE_DIR="$$PWD/.cache/escape/state" bin/sandbar images import .cache/images/debian.tar debian
	@# runsc is where "make tools" builds it, unless the machine has one of its own.
	@for d in $(DRIVERS); do roles=; [ $$d != native ] || roles="--role all"; [ $$d != native ] || ! [ -f .cache/images/debian.tar ] || roles="$$roles --image debian"; \
		echo "escape-suite --driver $$d $$roles"; SANDBAR_STATE_DIR="$$PWD/.cache/escape/state" PATH="$$PATH:$$PWD/.cache/bin" bin/sandbar escape-suite --driver $$d $$roles --fuzz $(FUZZ) --json >.cache/escape/$$d.json || exit 1; done
	@$(HOST) go run ./internal/driver/escapesuite/table SECURITY.md $(DRIVERS:%=.cache/escape/%.json)

tools: ## fetch what the tests use and this machine lacks
	@sh scripts/tools.sh test

clean: ## remove all that make made and fetched
	rm -rf bin .cache internal/agent/embedded/sandbar-agent internal/agent/embedded/.sandbar-agent.* internal/wasm/artefact/*.wasm* internal/wasm/artefact/libv86.js* internal/wasm/artefact/*bios.bin* internal/wasm/artefact/sandbar-guest

vet:
	go vet ./...

runner:
	@mkdir -p .cache/bin
	@$(HOST) go build -o $(RUNNER) ./internal/test/testenv/runner
