# Has frameworks work in real containers, through the adapters of the SDKs.
#
# Included by the top Makefile.

.PHONY: test-adapters
test-adapters: all setup-test ## work through each adapter with its real framework (2 GB of disk, 10 minutes first)
	@mkdir -p .cache/images
	@./bin/berth image build base --quiet --output .cache/images/base.tar
	@BERTH_BIN=$(abspath $(BIN)) BERTH_BASE_IMAGE=$(abspath .cache/images/base.tar) \
		BERTH_ADAPTERS=1 go test -count=1 -timeout 60m -v ./test/adapters
