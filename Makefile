# Every target names the plain cargo/go command it runs; `make help` lists them.
SHELL := /bin/bash
BIN := bin
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
export CGO_ENABLED ?= 0
# Programs, tests and tools are compiled alike, so that Go compiles each package once.
export GOFLAGS := -trimpath $(filter-out -trimpath,$(shell go env GOFLAGS 2>/dev/null))
# A registry that resets one connection fails no build.
export CARGO_NET_RETRY ?= 10
TALLY := go run ./internal/tools/tally
LONG := $(TALLY) -page docs/reference/test-long.md
GO_BUILD := go build -ldflags='-s -w -X lateen.dev/lateen/internal/cli.version=$(VERSION)' -o $(BIN)/
IMAGES := control agent proxy load bookinfo-productpage bookinfo-details bookinfo-ratings bookinfo-reviews

.PHONY: help build images archives check test test-long accept fuzz gen reference fmt demo clean toolchain soak interop interop-sides compare test-kube dashboards advisories

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

toolchain: ## check the versions of Go and Rust before anything is built
	@hack/toolchain.sh

# The last steps of Cargo keep one processor busy, and Go builds beside them.
build: toolchain ## release binaries into bin/
	@mkdir -p $(BIN)
	$(GO_BUILD) ./cmd/... & go=$$!; hack/cargo-release.sh -p lateen-proxy -p lateen-load; rust=$$?; wait $$go && exit $$rust
	@for b in lateen-proxy lateen-load; do install -C -m 0755 "$${CARGO_TARGET_DIR:-target}/release/$$b" $(BIN)/$$b; done
	@ls $(BIN)

images: toolchain ## container images into bin/images/ (IMAGES="control agent" makes some of them; IMAGES_FLAGS=-fresh: newest Debian packages)
	$(if $(filter proxy load,$(IMAGES)),hack/cargo-release.sh -p lateen-proxy -p lateen-load)
	@mkdir -p $(BIN)
	$(GO_BUILD) $(wildcard ./cmd/lateen-*)
	@for b in $(addprefix lateen-,$(filter proxy load,$(IMAGES))); do install -C -m 0755 "$${CARGO_TARGET_DIR:-target}/release/$$b" $(BIN)/$$b; done
	@$(MAKE) -s archives IMAGES="$(IMAGES)" IMAGES_FLAGS="$(IMAGES_FLAGS)"

archives: ## the same of the programs that are in bin/ already
	@go run ./internal/tools/images -version $(VERSION) $(IMAGES_FLAGS) $(IMAGES)

check: toolchain ## format, lints, dependency rules, licences, pure tests (under 2 minutes warm)
	@$(TALLY) tests/tiers/check

test: ## install missing packages, then everything: check, namespaces, the mesh end to end, real Kubernetes clusters (needs root)
	@hack/toolchain.sh --languages
	@hack/packages.sh test
	@$(MAKE) --no-print-directory build
	@LATEEN_BUILT_PROXY=$(CURDIR)/$(BIN)/lateen-proxy $(TALLY) tests/tiers/test

test-long: ## make test, then fuzzing, soak, leaving and joining, suites through a waypoint, agreement, policies and hostile requests beside Envoy, tests without their guards, CI's run in a bare Debian (5 hours; MINUTES=40 or PARTS="soak, h1_core": parts of it, without make test)
	@$(LONG) -minutes 0 -only "$(strip $(PARTS))" tests/tiers/test-long # a tree with changes is refused here, and not after an hour
	@[ -z "$(MINUTES)$(strip $(PARTS))" ] || echo "make test is no part of this run: see that it passes at this commit"
	@[ "$(MINUTES)" = 0 ] || $(MAKE) --no-print-directory $(if $(MINUTES)$(strip $(PARTS)),build,test)
	@[ "$(MINUTES)" = 0 ] || hack/packages.sh test-long
	@[ "$(MINUTES)" = 0 ] || $(LONG) $(if $(MINUTES),-minutes $(MINUTES)) -only "$(strip $(PARTS))" tests/tiers/test-long

accept: build ## the acceptance scripts alone
	@tests/accept/run.sh

test-kube: ## install missing packages, then the mesh on real two-node Kubernetes clusters of its own (needs root; KEEP=1 keeps them)
	@hack/toolchain.sh --languages
	@hack/packages.sh test-kube
	@$(MAKE) --no-print-directory build images
	@tests/kube/run.sh

fuzz: ## every fuzz target, 30 seconds each (FUZZ_SECONDS=n)
	@hack/fuzz.sh

gen: ## regenerate the code of proto/
	cargo build -q --workspace --example generate
	"$${CARGO_TARGET_DIR:-target}/debug/examples/generate"
	go run ./internal/gen/protogen

reference: ## write docs/reference/{metrics,log,environment,annotations,takeover,analysis}.md and internal/cli/proxyvariables.txt from what the programs declare
	go run ./internal/reference

dashboards: ## write dashboards/*.json, and copy them and the alerts into the chart
	go run ./internal/tools/dashboards

fmt: ## format all code
	cargo fmt
	gofmt -w cmd internal tests samples

advisories: ## known vulnerabilities of the dependencies (needs a network, or copies: see hack/advisories.sh)
	@hack/advisories.sh

demo: ## install what is missing, build, run Bookinfo with and without the mesh, measure, take down (DEMO_FLAGS="--rounds 1")
	@hack/demo.sh $(DEMO_FLAGS)

clean: ## remove what building made
	rm -rf $(BIN) target fuzz/target

interop: build ## every check of tests/interop with an unmodified ztunnel as the other node proxy (ZTUNNEL=/path/to/ztunnel, and AGENTGATEWAY=/path/to/agentgateway for one more; root; 25 minutes)
	@ZTUNNEL="$(ZTUNNEL)" AGENTGATEWAY="$(AGENTGATEWAY)" tests/interop/run.sh

interop-sides: build ## scripts of tests/accept and tests/faults with an unmodified ztunnel behind the client, then behind the server (root; half an hour)
	@ZTUNNEL="$(ZTUNNEL)" tests/interop/sides.sh

compare: build ## CPU, latency and memory against a pair of unmodified ztunnels, interleaved (ZTUNNEL=/path/to/ztunnel)
	@ZTUNNEL="$(ZTUNNEL)" tests/bench/compare-ztunnel.sh

soak: build ## ten minutes of churn, rotation, policy changes and restarts of every part (SOAK_SECONDS=n; needs root)
	@tests/soak/run.sh
