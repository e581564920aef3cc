# Every target does its own set-up: a new machine needs Rust, CPython 3.11+ with pip, a C compiler and make.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
# Seconds for each fuzz target.
FUZZ_SECONDS ?= 120

RUST := $(shell find crates bindings -name '*.rs' -o -name '*.toml' -o -name '*.html' -o -path '*-cli/*.py' 2>/dev/null) Cargo.toml Cargo.lock pyproject.toml

.PHONY: help setup demo test test-all bench fuzz lint doc wheels test-aarch64 clean

help: ## Say what can be made
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(VENV)/ready: tests/requirements.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "CPython 3.11 or newer is needed: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -r tests/requirements.txt
	touch $@

# The module and the command, in the virtual environment, built with the one profile that the tests use too.
$(VENV)/installed: $(VENV)/ready $(RUST)
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/maturin develop --release --quiet
	touch $@

setup: $(VENV)/installed ## Build everything into .venv

demo: setup ## Show the whole story on this machine: np.memmap, a map per chunk, Lowtide
	$(BIN)/lowtide demo

# The Python module has no tests of Rust's; named here, it gives the dependencies the features that they have in the wheel,
# so that none of them is compiled twice.
RUST_TESTS := --package lowtide --package lowtide-text --package lowtide-cli --package lowtide-python

test: setup ## Run the fast tests
	cargo test --release --quiet $(RUST_TESTS)
	$(BIN)/pytest -q -m "not heavy"

# Chromium renders the reports, strace watches system calls; where they cannot be installed, those tests skip and say so.
SYSTEM := chromium strace
$(VENV)/heavy: $(VENV)/ready tests/requirements-heavy.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -r tests/requirements-heavy.txt
	command -v $(SYSTEM) | wc -l | grep -qx $(words $(SYSTEM)) || { test "$$(id -u)" = 0 && command -v apt-get > /dev/null && apt-get update -qq && apt-get install -y -qq $(SYSTEM) > /dev/null; } || true
	touch $@

test-all: setup $(VENV)/heavy ## Run the heavy tests and the linters too
	$(MAKE) lint
	$(BIN)/pytest -q -m heavy

bench: setup $(VENV)/heavy ## Run the benchmarks and keep the run in bench/runs
	$(BIN)/python bench/run.py

fuzz: ## Fuzz every parser, FUZZ_SECONDS each
	fuzz/run.sh $(FUZZ_SECONDS)

lint: setup ## Run every linter
	cargo fmt --all --check
	cargo clippy --release --all-targets --quiet -- -D warnings
	cargo clippy --release --package lowtide-python --quiet -- -D warnings
	cargo clippy --release --package lowtide-text --quiet -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --quiet
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(VENV)/wheels: $(VENV)/ready wheels/requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -r wheels/requirements.txt
	touch $@

wheels: $(VENV)/wheels ## Build wheels for x86-64 and aarch64 into dist, and test them
	wheels/build.sh
	PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/python wheels/check.py dist/lowtide-*.whl
	PYTHON=$(PYTHON) wheels/try.sh
	$(MAKE) test-aarch64

test-aarch64: $(VENV)/wheels ## Run the core's tests for aarch64, where need be under qemu
	wheels/aarch64.sh

doc: ## Build the Rust documentation
	cargo doc --no-deps

clean: ## Remove everything that was built
	rm -rf target $(VENV) fuzz/target
