# The release: everything in dist/, for amd64 and arm64, equal byte for byte in each run over one commit with the same
# versions of Go and of Debian's packages. packaging/README.md says what is in there.
#
# Included by the top Makefile, after mk/runtimes.mk, whose rules build the programs of each architecture here.

DIST := dist
RELEASE := .cache/release
# The machine's own first: its programs make the manual pages for all, and only its base image is built.
RELEASE_ARCHES ?= $(shell go env GOHOSTARCH) $(filter-out $(shell go env GOHOSTARCH),amd64 arm64)

# Who publishes the packages, as "Name <address>", and where they are from. Set them on the command line.
export MAINTAINER ?= The berth authors
export HOMEPAGE ?=

# The C compiler for runc, which is linked with Debian's static libraries; packaging/build unpacks them below .cache.
RELEASE_CC_amd64 := x86_64-linux-gnu-gcc
RELEASE_CC_arm64 := aarch64-linux-gnu-gcc
RELEASE_DEBS := binutils mmdebstrap $(if $(filter x86_64,$(shell uname -m)),gcc-aarch64-linux-gnu,gcc-x86-64-linux-gnu)
RELEASE_TEST_DEBS := lintian prometheus rpm qemu-user-static zsh fish man-db groff file

.PHONY: release test-release setup-release
setup-release: setup
	$(call install,$(RELEASE_DEBS))

release: setup-release ## make dist/: tarballs, packages, images of both architectures (15 minutes the first time)
	@rm -rf $(DIST) && mkdir -p $(DIST)
	@$(foreach arch,$(RELEASE_ARCHES),$(MAKE) --no-print-directory release-$(arch) && ) true
	@packaging/build finish $(DIST)

release-%: setup-release
	@packaging/build libraries $* $(RELEASE)/$*/root
	@export GOOS=linux GOARCH=$* CC='$(RELEASE_CC_$*) --sysroot=$(abspath $(RELEASE))/$*/root' \
		PKG_CONFIG_LIBDIR=$$(echo $(abspath $(RELEASE))/$*/root/usr/lib/*-linux-gnu/pkgconfig) && \
	$(MAKE) --no-print-directory BIN=$(RELEASE)/$*/bin VERSION=$$(packaging/build commit) \
		RUNC_TAGS='seccomp netgo osusergo' RUNC_LD='-buildid= -linkmode external -extldflags -static' \
		$(RELEASE)/$*/bin/berth $(RELEASE)/$*/bin/berth-guest runtimes builder gvisor
	@packaging/build pack $* $(RELEASE)/$* $(DIST)

test-release: release setup-test setup-bench ## install, upgrade and remove the packages in Debian's root file systems
	$(call install,$(RELEASE_TEST_DEBS))
	@packaging/build before $(RELEASE)/before
	@cd packaging && BERTH_DIST=$(abspath $(DIST)) BERTH_BEFORE=$(abspath $(RELEASE))/before/bin \
		go test -count=1 -timeout 60m -v -run Release .
