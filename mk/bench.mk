# Benchmarks, and what they compare with: berth-bench is a module of its own in test/bench. mk/setup.mk installs the
# comparators that Debian has. containerd and its ctr are built here from runtimes/comparators/go.mod, in the version
# that berth embeds.
#
# Included by the top Makefile.

COMPARATORS_MOD := runtimes/comparators/go.mod runtimes/comparators/go.sum
BENCH_IMAGE := .cache/images/base.tar
BENCH_FLAGS ?=

BENCH_NEEDS := all gvisor $(BIN)/berth-bench setup-bench comparators $(BENCH_IMAGE)

.PHONY: bench bench-check comparators
bench: $(BENCH_NEEDS) ## measure both runtime classes, docker and the bare machine, into docs/benchmarks.*
	@./bin/berth bench --self --base $(BENCH_IMAGE) --runtime-class runc,gvisor --json docs/benchmarks.json \
		--markdown docs/benchmarks.md --svg docs/benchmarks.svg $(BENCH_FLAGS)

bench-check: $(BENCH_NEEDS) ## measure, and fail if a ratio is 20 % worse than in docs/benchmarks.json
	@./bin/berth bench --self --base $(BENCH_IMAGE) --check docs/benchmarks.json $(BENCH_FLAGS)

$(BENCH_IMAGE): $(BIN)/berth
	@mkdir -p $(@D)
	@./bin/berth image build base --output $@

comparators: $(BIN)/ctr $(BIN)/containerd

$(BIN)/ctr $(BIN)/containerd: $(COMPARATORS_MOD) | $(BIN) setup
	@echo "building $(@F), to compare with (about a minute the first time)"
	@cd runtimes/comparators && CGO_ENABLED=0 go build -trimpath -tags no_cri -ldflags '$(RUNTIMES_LD)' \
		-o $(abspath $@).new github.com/containerd/containerd/v2/cmd/$(@F)
	@mv -f $@.new $@

$(BIN)/berth-bench: $(GO_SOURCES) test/bench/go.mod test/bench/go.sum | $(BIN) setup
	@echo "building berth-bench"
	@cd test/bench && CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o $(abspath $@) ./berth-bench
