# The OCI runtimes, built from their Go modules: containerd's runc shim and runc from
# runtimes/go.mod, gVisor's runsc from runtimes/gvisor/go.mod. Two modules, because runsc
# needs an older runtime-spec than runc does. runsc takes two minutes to compile and is
# optional, so `make gvisor` alone builds it. The builder of images has a module of its own, since
# BuildKit needs much that the daemon does not.
#
# Included by the top Makefile, after mk/setup.mk, whose target setup installs what this
# needs: for runc gcc, pkg-config and libseccomp-dev (without libseccomp runc would run
# containers without a filter, so there is no fallback).

BIN ?= bin

.PHONY: runtimes gvisor builder
runtimes: $(BIN)/containerd-shim-runc-v2 $(BIN)/runc
builder: $(BIN)/berth-builder
gvisor: $(BIN)/runsc ## build gVisor's runtime into bin/, for containers of class gvisor

RUNTIMES_MOD := runtimes/go.mod runtimes/go.sum
GVISOR_MOD   := runtimes/gvisor/go.mod runtimes/gvisor/go.sum
RUNTIMES_LD  := -s -w
RUNC_TAGS    := seccomp
RUNC_LD      := # how to link runc; mk/release.mk links it statically
RUNC_VERSION := $(shell sed -n 's|.*opencontainers/runc v\([^ ]*\).*|\1|p' runtimes/go.mod)
RUNSC_VERSION := $(shell sed -n 's|.*gvisor.dev/gvisor v\([^ ]*\).*|\1|p' runtimes/gvisor/go.mod)

# Each is built beside its place and moved there, so that a broken build leaves
# nothing that looks ready, and so that a running shim is never overwritten.
$(BIN)/containerd-shim-runc-v2: $(RUNTIMES_MOD) | $(BIN) setup
	@echo "building containerd-shim-runc-v2 (about 30 s the first time)"
	@cd runtimes && CGO_ENABLED=0 go build -trimpath -ldflags '$(RUNTIMES_LD)' \
		-o $(abspath $@).new github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2
	@mv -f $@.new $@

$(BIN)/runc: $(RUNTIMES_MOD) | $(BIN) setup
	@pkg-config --exists libseccomp || { \
		echo "runc needs libseccomp: apt-get install gcc pkg-config libseccomp-dev"; exit 1; }
	@echo "building runc $(RUNC_VERSION) with seccomp"
	@cd runtimes && CGO_ENABLED=1 go build -trimpath -tags '$(RUNC_TAGS)' \
		-ldflags "$(RUNTIMES_LD) -X main.version=$(RUNC_VERSION) $(RUNC_LD)" \
		-o $(abspath $@).new github.com/opencontainers/runc
	@mv -f $@.new $@

$(BIN)/runsc: $(GVISOR_MOD) | $(BIN) setup
	@echo "building runsc, gVisor's runtime (about 2 minutes the first time)"
	@cd runtimes/gvisor && CGO_ENABLED=0 go build -trimpath \
		-ldflags '$(RUNTIMES_LD) -X gvisor.dev/gvisor/runsc/version.version=$(RUNSC_VERSION)' \
		-o $(abspath $@).new gvisor.dev/gvisor/runsc
	@chmod 755 $@.new # it starts itself as a user without rights, whatever the umask here
	@mv -f $@.new $@

$(BIN)/berth-builder: $(wildcard builder/*.go) builder/go.mod build/wire/wire.go | $(BIN)
	@echo "building berth-builder, which builds images by BuildKit (about 1 minute the first time)"
	@cd builder && CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $(abspath $@).new .
	@mv -f $@.new $@

$(BIN):
	@mkdir -p $@
