# `make demo`, `make test` and `make check` do the set-up by themselves.
VENV := .venv
PYTHON := $(VENV)/bin/python
# -qq: a machine's own pip settings may warn on every package; errors are still shown.
PIP_INSTALL := $(PYTHON) -m pip --disable-pip-version-check -qq install

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo run test check fix conformance fuzz bench bench-full lock clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1 \2/p' $(MAKEFILE_LIST) | while read -r make target text; do \
		printf '  %s %-11s %s\n' "$$make" "$$target" "$$text"; done

setup: $(VENV)/ready ## the virtual environment, with every version and hash locked

# A virtual environment that does not run (half made, moved, or its Python is gone) is made anew.
# The second install builds with the locked hatchling, and so downloads nothing.
$(VENV)/ready: requirements-dev.lock pyproject.toml
	@if ! $(PYTHON) -m pip --version >/dev/null 2>&1; then \
		python=$$(scripts/find-python) || exit 1; \
		echo "making $(VENV) with $$python, which takes a minute or two"; \
		"$$python" -m venv --clear $(VENV); \
	fi
	$(PIP_INSTALL) --require-hashes -r requirements-dev.lock
	$(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

demo: $(VENV)/ready ## a proxy with offline models: two panels, a verdict, the record
	$(VENV)/bin/bench-proxy demo

run: $(VENV)/ready ## the same, and the proxy runs on until Ctrl-C, on port 4000 or PORT=…
	$(VENV)/bin/bench-proxy demo --keep $(if $(PORT),--port $(PORT))

test: $(VENV)/ready ## the tests
	$(PYTHON) -m pytest

check: $(VENV)/ready ## format, lint, types, imports, tests; CI runs demo, then this
	$(PYTHON) -m ruff format --check
	$(PYTHON) -m ruff check
	$(PYTHON) -m mypy
	$(VENV)/bin/lint-imports
	$(PYTHON) -m pytest

fix: $(VENV)/ready ## format, and repair what the linter can
	$(PYTHON) -m ruff format
	$(PYTHON) -m ruff check --fix

conformance: $(VENV)/ready ## who translates which request rightly, into docs/formats.md
	$(PYTHON) -m conformance

# make fuzz REQUESTS=100000
REQUESTS := 20000
fuzz: $(VENV)/ready ## hostile requests to a real proxy, 20,000 of them: minutes
	$(PYTHON) -m fuzzing --requests $(REQUESTS)

bench: $(VENV)/ready ## what bench-proxy costs, in minutes
	$(PYTHON) -m benchmarks

bench-full: $(VENV)/ready ## more of it, in more rounds and longer windows: over an hour
	$(PYTHON) -m benchmarks --full

# Keeps the versions that still fit; `make lock UPGRADE=--upgrade` takes the newest. One file fits every platform and
# Python from 3.11 up.
LOCK := $(PYTHON) -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --extra postgres \
	--no-emit-index-url --custom-compile-command 'make lock' $(UPGRADE) pyproject.toml

lock: $(VENV)/ready ## the lock files, from pyproject.toml
	$(LOCK) --output-file requirements.lock
	$(LOCK) --group dev --constraint requirements.lock --output-file requirements-dev.lock

clean: ## everything that these targets made
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
