# What each target does stands in the README.

CACHE    := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/pod-checkpointer
GOLANGCI := v2.15.0
LINTER   := $(CACHE)/golangci-lint-$(GOLANGCI)/golangci-lint
TAGS     := grpcnotrace
BUILD    := CGO_ENABLED=0 go build -trimpath -tags $(TAGS) -ldflags '-s -w'
STAGES   := lint unit sim e2e

export GOFLAGS := $(GOFLAGS) -buildvcs=false

.PHONY: build test $(STAGES) demo bench soak size

build:
	$(BUILD) -o bin/ ./cmd/pod-checkpointer ./cmd/lock-exec

# Each stage in turn; the first that fails ends it. The times stand together at the end.
test:
	@times=; for stage in $(STAGES); do \
		begin=$$(date +%s); echo "== $$stage"; \
		$(MAKE) --no-print-directory $$stage || { echo "== $$stage failed after $$(($$(date +%s) - begin)) s"; exit 1; }; \
		times="$$times  $$stage $$(($$(date +%s) - begin)) s"; \
	done; echo "== all stages passed:$$times"

lint: $(LINTER)
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$unformatted" || { echo "gofmt -w $$unformatted"; exit 1; }
	$(LINTER) run --build-tags $(TAGS),e2e ./...

$(LINTER):
	@echo "building golangci-lint $(GOLANGCI), some minutes, once"
	GOBIN=$(dir $@) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI)

unit:
	go test -tags $(TAGS) $$(go list ./... | grep -v /test/sim)

sim:
	go test -tags $(TAGS) ./test/sim

e2e:
	go test -tags $(TAGS),e2e -count=1 -timeout 30m -v ./test/e2e

demo:
	go test -tags $(TAGS),e2e -count=1 -timeout 30m -v ./test/e2e -run 'TestReboot$$' -keep

bench:
	go test -tags $(TAGS),e2e -count=1 -timeout 60m -v ./test/bench -run TestBench

soak:
	go test -tags $(TAGS) -count=1 -timeout 60m ./test/sim -sim.seeds=5000

size: build
	@ls -l bin | awk 'NR > 1 { printf "%-20s %5.1f MiB\n", $$NF, $$5 / 1048576 }'
