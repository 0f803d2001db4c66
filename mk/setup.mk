# Installs the missing Debian packages that the machine needs.
#
# Included by the top Makefile.

# To build and to run. npm fetches the libraries of the web console.
DEBS := gcc libc6-dev pkg-config libseccomp-dev btrfs-progs mmdebstrap ca-certificates \
	$(if $(shell command -v pip3),,python3-pip) $(if $(shell command -v npm),,nodejs npm)
# For the demo, besides those: the Python SDK runs under these.
DEMO_DEBS := python3 python3-venv
# To test, besides those: the TypeScript and Python SDKs run under these.
TEST_DEBS := python3 python3-venv procps $(if $(shell command -v node),,nodejs npm) $(if $(shell command -v git),,git) \
	curl jq
# To measure, besides those: programs to compare berth with, and programs that count system calls.
BENCH_DEBS := docker.io crun bubblewrap python3-ipykernel python3-jupyter-client strace linux-perf

# $(call install,packages): apt-get, if one of them is missing.
define install
	@missing=$$(for p in $(1); do \
		dpkg-query -W -f '$${Status}\n' $$p 2>/dev/null | grep -q 'install ok installed' || echo $$p; done); \
	if [ -n "$$missing" ]; then \
		[ "$$(id -u)" = 0 ] || { echo "missing: $$missing; run as root, or: apt-get install $$missing"; exit 1; }; \
		echo "installing" $$missing; \
		export DEBIAN_FRONTEND=noninteractive; \
		apt-get update -qq && \
		RUNLEVEL=1 apt-get install -y -qq --no-install-recommends $$missing >/dev/null || exit 1; \
	fi
endef

# To visit ports with a browser, besides those to test.
BROWSER_DEBS := chromium libnss3-tools python3-pip

.PHONY: setup setup-demo setup-test setup-bench setup-browser
setup:
	$(call install,$(DEBS))

setup-demo: setup
	$(call install,$(DEMO_DEBS))

setup-test: setup
	$(call install,$(TEST_DEBS))

# The daemons among them are not started: benchmarks start their own.
setup-bench: setup
	$(call install,$(BENCH_DEBS))

setup-browser: setup-test
	$(call install,$(BROWSER_DEBS))
