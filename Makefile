# Every target does its own set-up: a new machine needs Rust, CPython 3.11+ with pip, a C compiler and make.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
# Seconds for each fuzz target.
FUZZ_SECONDS ?= 120

RUST := $(shell find crates bindings -name '*.rs' -o -name '*.toml' -o -name '*.html' -o -name '*.css' -o -path '*-cli/*.py' 2>/dev/null) Cargo.toml Cargo.lock pyproject.toml

.PHONY: help setup gpt demo test test-rust test-rust-within test-rust-around test-python test-all bench fuzz lint doc docs wheels test-aarch64 clean

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

# candle takes minutes to compile: nothing but this, the heavy tests and the linters wait for it.
GPT := target/release/lowtide-gpt
gpt: ## Build the small GPT of examples/gpt
	cargo build --release --quiet --package lowtide-gpt

demo: setup gpt ## Show the whole story on this machine: np.memmap, Lowtide, a small GPT, and a page of it
	$(BIN)/lowtide demo --gpt $(GPT)

# The same examples every time, as Hypothesis has them too: a change is judged by what it changed, and no luck of the draw
# fails it. PROPTEST_RNG_SEED=$RANDOM draws others.
export PROPTEST_RNG_SEED ?= 1

# The Python module has no tests of Rust's; named here, it gives the dependencies the features that they have in the wheel,
# so that none of them is compiled twice.
RUST_TESTS := --package lowtide --package lowtide-text --package lowtide-cli --package lowtide-python

# Python's tests wait for disks and processes more than they compute. In what they leave of the processors, Rust's are
# built and run: side by side they take two thirds of the time. Rust's take longest, so nothing goes before them. Each
# prints when it is done.
test: setup ## Run the fast tests
	$(MAKE) --jobs=2 --output-sync=target --no-print-directory test-rust test-python

# A test that waits for a disk or a server keeps a thread from one that computes: so there are more threads than
# processors, and the library's own tests run beside those of its public face.
export RUST_TEST_THREADS ?= 4
test-rust:
	cargo test --release --quiet $(RUST_TESTS) --no-run
	$(MAKE) --jobs=2 --output-sync=target --no-print-directory test-rust-within test-rust-around

test-rust-within:
	cargo test --release --quiet $(RUST_TESTS) --lib --bins

test-rust-around:
	cargo test --release --quiet $(RUST_TESTS) --test '*'
	cargo test --release --quiet $(RUST_TESTS) --doc

# What the fast tier leaves out; other ignored tests are measurements.
SLOW_RUST := seeds_and_epochs_are_unrelated bad_shuffles_are_caught draws_are_independent bad_draws_are_caught \
	the_spread_is_as_predicted in_a_small_budget

# Two files at a time, each by itself in its worker: what a test measures, it measures of its own processes and files.
PYTEST := $(BIN)/pytest -q --numprocesses=2 --dist=loadfile

test-python:
	$(PYTEST) -m "not heavy"

# Chromium renders the reports, strace watches system calls; where they cannot be installed, those tests skip and say so.
SYSTEM := chromium strace
$(VENV)/heavy: $(VENV)/ready tests/requirements-heavy.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -r tests/requirements-heavy.txt
	command -v $(SYSTEM) | wc -l | grep -qx $(words $(SYSTEM)) || { test "$$(id -u)" = 0 && command -v apt-get > /dev/null && apt-get update -qq && apt-get install -y -qq $(SYSTEM) > /dev/null; } || true
	touch $@

test-all: setup $(VENV)/heavy ## Run the heavy tests and the linters too, and build the site
	$(MAKE) lint docs gpt
	cargo test --release --quiet --package lowtide-gpt
	cargo test --release --quiet $(RUST_TESTS) --lib --test stores --test objects -- --ignored $(SLOW_RUST)
	$(PYTEST) -m heavy

bench: setup $(VENV)/heavy ## Run the benchmarks and keep the run in bench/runs
	$(BIN)/python bench/run.py

fuzz: ## Fuzz every parser, FUZZ_SECONDS each
	fuzz/run.sh $(FUZZ_SECONDS)

# The quick ones first: a line that is too long is known in seconds.
lint: setup ## Run every linter
	cargo fmt --all --check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	cargo clippy --release --all-targets --quiet -- -D warnings
	cargo clippy --release --package lowtide-python --quiet -- -D warnings
	cargo clippy --release --package lowtide-text --quiet -- -D warnings
	cargo clippy --release --package lowtide-gpt --all-targets --quiet -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --quiet

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

$(VENV)/docs: $(VENV)/ready docs/requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check -r docs/requirements.txt
	touch $@

docs: $(VENV)/docs ## Build the site into docs/_build/html, the Rust documentation included, and check its links
	$(BIN)/python docs/build.py

clean: ## Remove everything that was built
	rm -rf target $(VENV) fuzz/target docs/_build
