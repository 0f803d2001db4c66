# Makes the types of the TypeScript SDK, and runs its cases in a browser. `make test` runs them in Node.
#
# Included by the top Makefile.

.PHONY: sdk-types test-sdk-browser
sdk-types: all setup-test ## make the types of the TypeScript SDK of the OpenAPI document
	@mkdir -p .cache/images
	@./bin/berth image build base --quiet --output .cache/images/base.tar
	@BERTH_BIN=$(abspath $(BIN)) BERTH_BASE_IMAGE=$(abspath .cache/images/base.tar) \
		go test -count=1 -run '^TestSDK$$/^types$$' ./test/sdktypescript -update

test-sdk-browser: all setup-browser ## use the TypeScript SDK in Chromium, with a key and with a cookie
	@mkdir -p .cache/images
	@./bin/berth image build base --quiet --output .cache/images/base.tar
	@BERTH_BIN=$(abspath $(BIN)) BERTH_BASE_IMAGE=$(abspath .cache/images/base.tar) \
		BERTH_CHROMIUM=$$(command -v chromium) \
		go test -count=1 -timeout 20m -v -run '^TestBrowser$$' ./test/sdktypescript
