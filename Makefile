# Two commands do everything on a machine that has Python and make:
#   make demo   install, then train a small CNN with and without riesz and compare
#   make test   install, then lint, types and all tests

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed

.PHONY: demo test test-all lint errors pictures clean

demo: $(INSTALLED)
	$(BIN)/riesz demo

test: $(INSTALLED) lint
	$(BIN)/pytest

test-all: test
	$(BIN)/pytest -m slow

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The largest error of every backend, metric and dtype against the reference.
errors: $(INSTALLED)
	$(BIN)/pytest -q tests/test_backends.py -k matches_the_reference

pictures: $(INSTALLED)
	$(BIN)/python docs/kernels.py

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[lab,dev,docs]"
	touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
