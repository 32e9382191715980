# What each target does stands in the README.

CACHE    := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/pod-checkpointer
GOLANGCI := v2.15.0
LINTER   := $(CACHE)/golangci-lint-$(GOLANGCI)/golangci-lint
TAGS     := grpcnotrace
E2E      := go test -tags $(TAGS),e2e -count=1 -timeout 40m -v ./test/e2e
BUILD    := CGO_ENABLED=0 go build -trimpath -tags $(TAGS) -ldflags '-s -w'
STAGES   := lint unit sim e2e pairs

# Kubernetes/containerd beside the lab's default v1.37.2/2.4.2.
PAIRS    := v1.37.2/1.6.20 v1.34.4/2.4.2 v1.34.4/1.6.20

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
	$(E2E)

pairs:
	@for pair in $(PAIRS); do \
		begin=$$(date +%s); echo "== one reboot on Kubernetes/containerd $$pair"; \
		$(E2E) -run 'TestReboot$$' -cuts 1 -kubernetes "$${pair%/*}" -containerd "$${pair#*/}" \
			|| { echo "== $$pair failed after $$(($$(date +%s) - begin)) s"; exit 1; }; \
		echo "== $$pair passed in $$(($$(date +%s) - begin)) s"; \
	done

demo:
	$(E2E) -run 'TestReboot$$' -keep

bench:
	go test -tags $(TAGS),e2e -count=1 -timeout 60m -v ./test/bench -run TestBench

soak:
	go test -tags $(TAGS) -count=1 -timeout 60m ./test/sim -sim.seeds=5000

size: build
	@ls -l bin | awk 'NR > 1 { printf "%-20s %5.1f MiB\n", $$NF, $$5 / 1048576 }'
