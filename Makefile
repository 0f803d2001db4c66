# berth. `make demo` and `make test` are all a new machine needs; `make help` lists the rest.

BIN := bin
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
GO_SOURCES := $(shell find . '(' -name '*.go' -o -name '*.s' ')' -not -path './runtimes/*' -not -path './.cache/*' -not -name '*_test.go') \
	$(shell find sandbox-image code/driver tools/bridge/inside -type f -not -name '*.go') go.mod go.sum
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.6.0

.PHONY: all demo test check serve doctor clean help
all: setup $(BIN)/berth $(BIN)/berth-guest runtimes ## build everything into bin/

include mk/setup.mk
include mk/runtimes.mk
include mk/bench.mk
include mk/image.mk

$(BIN)/berth: $(GO_SOURCES) | $(BIN) setup
	@echo "building berth (about 3 minutes the first time)"
	@CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $@ ./cmd/berth

$(BIN)/berth-guest: $(GO_SOURCES) | $(BIN) setup
	@echo "building berth-guest"
	@CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -E main.entry' -o $@ ./cmd/berth-guest

demo: all setup-demo ## do the main job from end to end, and leave the chart behind
	@./test/demo/demo.sh

test: all setup-test check ## run every test, real containers included
	@mkdir -p .cache/images
	@./bin/berth image build base --output .cache/images/base.tar
	@echo "running the tests"
	@BERTH_BIN=$(abspath $(BIN)) BERTH_BASE_IMAGE=$(abspath .cache/images/base.tar) go test -race -count=1 -timeout 20m ./...

check: ## formatting, vet, staticcheck, import rules, known vulnerabilities
	@echo "checking"
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "not gofmt-ed:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	@go vet ./...
	@go tool staticcheck ./...
	@go test -count=1 .
	@out=$$(go run $(GOVULNCHECK) ./... 2>&1) || case "$$out" in \
		*"fetching vulnerabilities"*|*"no such host"*|*"403 Forbidden"*) echo "note: govulncheck was left out: its database cannot be reached from here" ;; \
		*) echo "$$out"; exit 1 ;; esac

serve: all ## run the daemon for use; `bin/berth image build base` gives it an image
	@./bin/berth serve

doctor: all ## say what this host lacks
	@./bin/berth doctor

clean: ## remove what was built
	rm -rf $(BIN) .cache demo-out

help:
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12
