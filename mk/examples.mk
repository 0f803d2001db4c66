# Runs the recipes of examples/, those with frameworks included. `make test` runs those that need no large installation.
#
# Included by the top Makefile.

.PHONY: test-examples
test-examples: all setup-browser ## run each recipe of examples/ with its real framework (3 GB, 15 minutes first)
	@mkdir -p .cache/images
	@./bin/berth image build base --quiet --output .cache/images/base.tar
	@BERTH_BIN=$(abspath $(BIN)) BERTH_BASE_IMAGE=$(abspath .cache/images/base.tar) \
		BERTH_EXAMPLES=1 go test -count=1 -timeout 40m -v ./test/examples
