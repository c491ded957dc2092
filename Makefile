# Every target sets up what it needs: a virtual environment in .venv, updated only when a pyproject.toml changes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The factorisations are small: threads inside each only compete with each other.
export OPENBLAS_NUM_THREADS := 1
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo test test-slow test-oldest test-newest check docs bench campaign format clean

demo: $(VENV)/.run
	$(BIN)/twinfold demo $(ARGS)

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

test-slow: $(VENV)/.dev
	XLA_FLAGS="$$XLA_FLAGS" $(BIN)/python -m pytest -n 2 --dist worksteal -m slow $(ARGS)

# What old packages deprecate in each other is not our concern.
OLD := -W ignore::DeprecationWarning -W ignore::FutureWarning
# The suite with the oldest, and with the newest, versions of all dependencies that pyproject.toml allows.
test-oldest: .venv-lowest-direct/.dev
	.venv-lowest-direct/bin/python -m pytest -n 2 --dist worksteal $(OLD) $(ARGS)

test-newest: .venv-highest/.dev
	.venv-highest/bin/python -m pytest -n 2 --dist worksteal $(ARGS)

.venv-%/.dev: pyproject.toml studies/pyproject.toml
	$(PYTHON) -m venv --clear .venv-$*
	.venv-$*/bin/python -m pip --disable-pip-version-check --quiet install uv
	.venv-$*/bin/uv pip install --quiet --python .venv-$* --resolution $* --upgrade -e '.[all]' -e ./studies --group dev
	touch $@

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports --no-cache
	$(MAKE) docs

# Broken links, anchors and names are errors. The variable silences a notice of the theme about its own future.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir build/site

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Hours; resumes, and can be limited: make campaign ARGS="csv kills --scale 0.1".
campaign: $(VENV)/.dev
	$(BIN)/python -m campaign $(ARGS)

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks.peers $(ARGS)
	$(BIN)/python -m benchmarks.training
	$(BIN)/python -m benchmarks.commands

clean:
	rm -rf $(VENV) .venv-* runs .cache .pytest_cache .ruff_cache build dist

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "twinfold needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml studies/pyproject.toml | $(VENV)/bin/python
	$(PIP) install --upgrade pip
	$(PIP) install -e '.[all]' -e ./studies
	touch $@

$(VENV)/.dev: $(VENV)/.run
	$(PIP) install --group dev
	touch $@

$(VENV)/.docs: $(VENV)/.dev
	$(PIP) install --group docs
	touch $@

$(VENV)/.bench: $(VENV)/.run
	$(PIP) install --group bench
	touch $@
