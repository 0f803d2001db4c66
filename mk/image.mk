# The images full and dev, and one of clients of the network: their tests, and the lists of what is pinned in
# berth's own images.
#
# Included by the top Makefile.

# Packages to build the image, besides those of mk/setup.mk: they fetch Python packages and npm modules.
FULL_DEBS := python3 python3-pip $(if $(shell command -v npm),,npm)
FULL_IMAGE := .cache/images/full.tar
DEV_IMAGE := .cache/images/dev.tar

# Servers that clients of the network are tried against, besides those packages.
NETWORK_DEBS := openssh-server postgresql redis-server

.PHONY: setup-full setup-network test-full test-dev test-network test-dockerfiles lock
setup-full: setup-test
	$(call install,$(FULL_DEBS))

test-full: all setup-full
test-full: ## build the full image and try everything that is in it (20 GB of disk, 20 minutes the first time)
	@mkdir -p $(dir $(FULL_IMAGE))
	@./bin/berth image build base --quiet --output .cache/images/base.tar
	@./bin/berth image build full --output $(FULL_IMAGE)
	@echo "trying the full image"
	@BERTH_BIN=$(abspath $(BIN)) BERTH_BASE_IMAGE=$(abspath .cache/images/base.tar) \
		BERTH_FULL_IMAGE=$(abspath $(FULL_IMAGE)) \
		go test -race -count=1 -timeout 20m -v -run '^TestFullImage$$' ./daemon

test-dev: all setup-test
test-dev: ## build the image dev and try every language in it (6 GB of disk, 10 minutes the first time)
	@mkdir -p $(dir $(DEV_IMAGE))
	@./bin/berth image build base --quiet --output .cache/images/base.tar
	@./bin/berth image build dev --output $(DEV_IMAGE)
	@echo "trying the image dev"
	@BERTH_BIN=$(abspath $(BIN)) BERTH_BASE_IMAGE=$(abspath .cache/images/base.tar) \
		BERTH_DEV_IMAGE=$(abspath $(DEV_IMAGE)) \
		go test -race -count=1 -timeout 20m -v -run '^TestDevImage$$' ./daemon

setup-network: setup-test
	$(call install,$(NETWORK_DEBS))

# The image of clients is built in a daemon whose data stay below .cache, so that the next run has it.
test-network: all gvisor setup-network
test-network: ## try package managers, databases and browsers without a proxy (8 GB, 15 minutes the first time)
	@mkdir -p .cache/images .cache/network
	@./bin/berth image build base --quiet --output .cache/images/base.tar
	@BERTH_BIN=$(abspath $(BIN)) BERTH_BASE_IMAGE=$(abspath .cache/images/base.tar) \
		BERTH_NETWORK_DIR=$(abspath .cache/network) \
		go test -count=1 -timeout 60m -v -run '^TestAllClients$$' ./test/netclients

test-dockerfiles: all setup-test
test-dockerfiles: ## build Dockerfiles of published packages, which are downloaded (an hour on two busy cores)
	@mkdir -p .cache/images
	@./bin/berth image build base --quiet --output .cache/images/base.tar
	@cd builder && BERTH_BIN=$(abspath $(BIN)) BERTH_BASE_IMAGE=$(abspath .cache/images/base.tar) \
		go test -tags projects -count=1 -timeout 3h -v -run '^TestProjects$$' ./buildtest \
		-projects.table $(abspath .cache/dockerfiles.md)

# Pins the newest versions that fit each other. This machine's configuration chooses the index and the registry; neither
# list names one.
lock: setup-full ## pin the Python packages and modules of npm of berth's own images anew
	@python3 sandbox-image/lock.py sandbox-image/base
	@python3 sandbox-image/lock.py sandbox-image/full
	@python3 sandbox-image/lock.py sandbox-image/dev
	@cd sandbox-image/full/3-languages && rm -f package-lock.json && \
		npm install --package-lock-only --omit-lockfile-registry-resolved --ignore-scripts --no-audit --no-fund \
		--loglevel error
