# berth. `make demo` and `make test` are all a new machine needs; `make help` lists the rest. `make quick` is for the
# time between two commits.

BIN := bin
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
GO_SOURCES := $(shell find . '(' -name '*.go' -o -name '*.s' ')' -not -path './runtimes/*' \
		-not -path './builder/*' -not -path './.cache/*' \
		-not -path './test/sdktest/*' -not -name '*_test.go') \
	$(shell find sandbox-image code/driver tools/bridge/inside console/web -type f -not -name '*.go') go.mod go.sum
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.6.0

.PHONY: all demo test test-browser test-console test-e2b-frameworks test-generators quick mutants check lint serve
.PHONY: doctor clean help
all: setup $(BIN)/berth $(BIN)/berth-guest runtimes builder ## build everything but gVisor into bin/

include mk/setup.mk
include mk/console.mk
include mk/runtimes.mk
include mk/bench.mk
include mk/image.mk
include mk/sdk-python.mk
include mk/sdk-typescript.mk
include mk/adapters.mk
include mk/module.mk
include mk/release.mk
include mk/examples.mk

$(BIN)/berth: $(GO_SOURCES) $(CONSOLE_LIBS) | $(BIN) setup
	@echo "building berth (about 3 minutes the first time)"
	@CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $@ ./cmd/berth

$(BIN)/berth-guest: $(GO_SOURCES) | $(BIN) setup
	@echo "building berth-guest"
	@CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -E main.entry' -o $@ ./cmd/berth-guest

# What the demo needs, in steps whose targets run side by side: berth compiles while the base image's packages are
# fetched and installed.
demo: ## do the main job from end to end, and leave the chart behind
	@mk/steps \
		'Debian packages|20|setup-demo' \
		'berth, runc and the base image|200|$(BIN)/berth $(BIN)/berth-guest runtimes base-image-cache demo-sdk'
	@./test/demo/demo.sh

.PHONY: base-image-cache demo-sdk
base-image-cache: setup
	@go run ./mk/baseimage

demo-sdk: setup-demo
	@./test/demo/install-sdk.sh >/dev/null

test: all gvisor setup-test check ## run every test, real containers included
	@mkdir -p .cache/images
	@./bin/berth image build base --output .cache/images/base.tar
	@echo "running the tests"
	@BERTH_BIN=$(abspath $(BIN)) BERTH_BASE_IMAGE=$(abspath .cache/images/base.tar) \
		mk/test

test-browser: all setup-browser ## visit ports of containers with Chromium (2 GB of disk, 10 minutes the first time)
	@mkdir -p .cache/images
	@./bin/berth image build base --quiet --output .cache/images/base.tar
	@BERTH_BIN=$(abspath $(BIN)) BERTH_BASE_IMAGE=$(abspath .cache/images/base.tar) \
		BERTH_CHROMIUM=$$(command -v chromium) go test -count=1 -timeout 40m -v ./test/browser

test-console: all setup-browser ## visit every page of the web console with Chromium (1 GB of disk, 10 minutes)
	@mkdir -p .cache/images
	@./bin/berth image build base --quiet --output .cache/images/base.tar
	@BERTH_BIN=$(abspath $(BIN)) BERTH_BASE_IMAGE=$(abspath .cache/images/base.tar) \
		BERTH_CHROMIUM=$$(command -v chromium) go test -count=1 -timeout 20m -v ./test/consoletest

test-e2b-frameworks: all setup-test ## work through four frameworks' E2B clients (1.5 GB of disk, 10 minutes first)
	@mkdir -p .cache/images
	@./bin/berth image build base --quiet --output .cache/images/base.tar
	@BERTH_BIN=$(abspath $(BIN)) BERTH_BASE_IMAGE=$(abspath .cache/images/base.tar) \
		BERTH_FRAMEWORKS=1 go test -count=1 -timeout 40m -v -run TestFrameworks ./test/e2bclients

test-generators: all setup-test ## lint the OpenAPI document and use generated clients (600 MB of disk, 5 minutes first)
	@mkdir -p .cache/images
	@./bin/berth image build base --quiet --output .cache/images/base.tar
	@BERTH_BIN=$(abspath $(BIN)) BERTH_BASE_IMAGE=$(abspath .cache/images/base.tar) \
		BERTH_GENERATORS=1 go test -count=1 -timeout 30m -v ./test/generators

mutants: all gvisor setup-test ## break one promise of docs/security.md at a time, and see that tests notice; 30 minutes
	@mkdir -p .cache/images
	@./bin/berth image build base --output .cache/images/base.tar
	@BERTH_BIN=$(abspath $(BIN)) BERTH_BASE_IMAGE=$(abspath .cache/images/base.tar) \
		go test -v -count=1 -timeout 3h -run Mutants ./test/mutants -args -mutants all

quick: lint ## formatting, vet, staticcheck, house rules, and every test that needs no root and no container
	@go test -short ./...
	@cd test/bench && go test -short ./...

lint: # static checks of the sources
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { \
		echo "not gofmt-ed:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	@go vet ./...
	@go tool staticcheck ./...
	@tool=$$(go tool -n staticcheck) && cd test/bench && go vet ./... && $$tool ./...
	@tool=$$(go tool -n staticcheck) && cd builder && go vet ./... && $$tool ./...
	@tool=$$(go tool -n staticcheck) && cd packaging && go vet ./... && $$tool ./...
	@go test . # the house rules

check: lint ## formatting, vet, staticcheck, house rules, what only arm64 compiles, known vulnerabilities
	@CGO_ENABLED=0 GOARCH=arm64 go build -trimpath ./guest/... ./runtime/launch ./runtime/forkserver ./cmd/berth-guest
	@out=$$(go run $(GOVULNCHECK) ./... 2>&1) || case "$$out" in \
		*"fetching vulnerabilities"*|*"no such host"*|*"403 Forbidden"*) \
			echo "note: govulncheck was left out: its database cannot be reached from here" ;; \
		*) echo "$$out"; exit 1 ;; esac

serve: all ## run the daemon for use; `bin/berth image build base` gives it an image
	@./bin/berth serve

doctor: all ## say what this host lacks
	@./bin/berth doctor

clean: ## remove what was built
	rm -rf $(BIN) .cache demo-out

help:
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12
