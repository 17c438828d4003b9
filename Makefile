# All tasks of developers and CI. Each target installs what it needs, from a bare Debian 12; a second run skips that.
# `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

KUBE := 1.36.3
KUBE_OLDER := 1.32.2
ETCD_NEWER := 3.5.35 3.7.3
PYTHON := 3.13
OVN_OLDER := 22.03
OVN_NEWER := 25.03
OVN_NEWEST := 26.03
KILLS ?= 50
POD_KILLS ?= 200
WORKERS ?= 2# concurrent test processes; each may start its own etcd and kube-apiserver
FOCUS ?=# part of the names of Kubernetes' tests, as in: make test-conformance FOCUS=DNS
ARGS ?=# additional arguments for pytest, as in: make test ARGS='tests/store -k watch'

# Tests that need neither root nor other programs, with fewer seeds and histories.
QUICK := not versions and not vm and not etcd and not kube and not ovn and not lab and not root and not slow
SAMPLE := NETLOOM_TEST_PROFILE=quick NETLOOM_TEST_HISTORIES=40 NETLOOM_TEST_SEEDS=10 NETLOOM_TEST_FABRIC=4 NETLOOM_TEST_MALFORMED=500

BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest

.PHONY: help
help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' Makefile

.PHONY: setup
setup:  ## install system packages, and .venv with .venv/bin/netloom
	@tools/system-packages base
	@tools/uv sync --frozen --quiet
	@$(BIN)/python -c 'import netloom'

.PHONY: demo
demo: setup lab-setup  ## run a demo: networks of a small company on three virtual hosts, tested with real packets
	@tools/demo

.PHONY: test
test: test-setup kube kubectl-old clientgo gobgp helm  ## run all tests against the real programs, and check their coverage
	@rm -rf build/coverage && mkdir -p build/coverage
	@$(BIN)/coverage run -m pytest -n $(WORKERS) --dist worksteal --durations=10 --durations-min=5 $(ARGS) 2>&1 | tee build/pytest.log
	@$(if $(ARGS),echo 'make: coverage is not checked with ARGS',tools/coverage-gate)

.PHONY: test-quick
test-quick: setup  ## run the tests that need neither root nor other programs, in minutes
	@$(SAMPLE) $(PYTEST) -n $(WORKERS) --dist worksteal -m '$(QUICK)' --ignore tests/docs --ignore tests/e2e -q $(ARGS)

.PHONY: test-versions
test-versions: test-setup kubectl-old  ## run the tests against other versions of Kubernetes, etcd, OVN, Open vSwitch and FRR
	@tools/system-packages versions
	@tools/ovn-root $(OVN_OLDER) >/dev/null
	@tools/ovn-root $(OVN_NEWER) >/dev/null
	@tools/ovn-root $(OVN_NEWEST) >/dev/null
	@tools/kube/build $(KUBE)
	@tools/kube/build $(KUBE_OLDER)
	@for version in $(ETCD_NEWER); do tools/etcd/build $$version >/dev/null; done
	@$(PYTEST) -m versions $(ARGS)
	@$(MAKE) --no-print-directory test-uvicorn test-python

.PHONY: test-kills
test-kills: test-setup kube cnitool  ## kill what runs while Sandboxes (KILLS=50 times) and pods (POD_KILLS=200) come and go
	@NETLOOM_TEST_KILLS=$(KILLS) $(PYTEST) -n0 tests/lab/test_sandbox_kills.py $(ARGS)
	@NETLOOM_TEST_KILLS=$(POD_KILLS) $(PYTEST) -n0 -m 'churn and not versions' tests/lab $(ARGS)

.PHONY: test-conformance
test-conformance: test-setup kube  ## run Kubernetes' own tests of the network on a lab, all or FOCUS='REGEX'
	@tools/system-packages conformance
	@tools/kube/build $(KUBE) e2e.test agnhost >/dev/null
	@$(BIN)/python -m tests.conformance --workers $(WORKERS) --focus '$(FOCUS)' $(ARGS)

.PHONY: test-vm
test-vm: setup  ## run the tests that need a kernel with netem, in a virtual machine
	@tools/system-packages vm
	@tools/vm-kernel >/dev/null
	@$(PYTEST) -m vm -n0 tests/vm $(ARGS)

.PHONY: test-python
test-python: setup  ## run the tests that need no other program with the newest Python (or PYTHON=3.12)
	@python=$$(tools/python $(PYTHON)) && UV_PROJECT_ENVIRONMENT=build/python$(PYTHON) tools/uv sync --frozen --quiet --python $$python
	@$(SAMPLE) build/python$(PYTHON)/bin/python -m pytest -n $(WORKERS) -m '$(QUICK)' --ignore tests/docs --ignore tests/e2e $(ARGS)

.PHONY: test-uvicorn
test-uvicorn: setup  ## run the tests of the API server with the newest uvicorn, which pyproject.toml may not allow yet
	@UV_PROJECT_ENVIRONMENT=build/uvicorn tools/uv sync --frozen --quiet
	@tools/uv pip install --quiet --python build/uvicorn/bin/python --upgrade --no-deps uvicorn
	@build/uvicorn/bin/python -c 'import uvicorn; print("uvicorn", uvicorn.__version__)'
	@build/uvicorn/bin/python -m pytest -n $(WORKERS) -m '$(QUICK)' tests/front $(ARGS)

.PHONY: check
check: setup  ## check format, lint, types, layers, dead code, the lock file and the tree
	@$(BIN)/ruff format --check --quiet . || { echo 'make: run $(BIN)/ruff format .'; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache
	@tools/uv lock --check --quiet
	@$(BIN)/python tools/dead_code.py
	@$(BIN)/python tools/check_tree.py
	@find src -name '*.py' -not -path '*/ovsdb/rows/*' -exec wc -l {} + | awk '$$1 > 400 && $$2 != "total" { print "make: long module: " $$2 ": " $$1 " lines" }'

.PHONY: bench
bench: setup lab-setup kube gobgp  ## run the benchmarks, compared with the real kube-apiserver and others
	@tools/system-packages test bench
	@tools/ovn-root $(OVN_NEWEST) >/dev/null
	@NETLOOM_GO=$$(tools/go 1.22) $(BIN)/python -m bench $(ARGS)

.PHONY: kube
kube: setup  ## build the Kubernetes programs for the tests, once, into the cache
	@tools/kube/build $(KUBE)

.PHONY: clientgo
clientgo: setup kube  ## build the client-go program for the tests, once for each version of its sources, into the cache
	@tools/clientgo >/dev/null

.PHONY: gobgp
gobgp: setup  ## build GoBGP for the tests, once, into the cache
	@tools/gobgp/build >/dev/null

.PHONY: cnitool
cnitool: setup  ## build cnitool for the tests, once, into the cache
	@tools/cnitool/build >/dev/null

.PHONY: helm
helm: setup  ## build Helm for the tests, once, into the cache
	@tools/helm/build >/dev/null

.PHONY: manifests
manifests: helm  ## write deploy/chart/base: what `netloom crds` prints, and the chart's output for kustomize
	@tools/manifests

.PHONY: test-chart
test-chart: test-setup kube helm  ## install the chart on a real cluster, from an image built here
	@$(PYTEST) -m chart -n0 tests/chart $(ARGS)

.PHONY: docs
docs: setup  ## check the documentation: links, commands, examples
	@$(PYTEST) tests/test_docs.py $(wildcard tests/docs) -q $(ARGS)

.PHONY: reference
reference: setup  ## write docs/reference.md from the model
	@$(BIN)/python tools/reference.py > docs/reference.md

.PHONY: image-files
image-files: setup  ## put Netloom and its locked dependencies into build/image, for deploy/container/Containerfile
	@tools/image-files build/image

.PHONY: clean
clean:  ## remove all files that make created in this folder, but not the cache of Kubernetes programs
	@rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: lab-setup test-setup kubectl-old
lab-setup:
	@tools/system-packages lab
test-setup: setup lab-setup
	@tools/system-packages test kube
kubectl-old:
	@tools/kubectl-1.20
