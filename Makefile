# Every target sets up what it needs: a virtual environment in .venv, updated only when a pyproject.toml changes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The factorisations are small: threads inside each only compete with each other.
export OPENBLAS_NUM_THREADS := 1
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: demo test test-slow check docs bench format clean

demo: $(VENV)/.run
	$(BIN)/twinfold demo $(ARGS)

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow $(ARGS)

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

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks.peers $(ARGS)

clean:
	rm -rf $(VENV) runs .cache .pytest_cache .ruff_cache build dist

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
