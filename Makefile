# Two commands do everything on a machine that has Python and make:
#   make demo   install, then train a small CNN with and without riesz and compare
#   make test   install, then lint, types and all tests
# and one measures:
#   make bench  every claim about speed, against its target

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed

.PHONY: demo test test-all lint errors pictures bench test-native native clean

demo: $(INSTALLED)
	$(BIN)/python examples/mnist5k.py

test: $(INSTALLED) lint
	$(BIN)/pytest

test-all: test

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The largest error of every backend, metric and dtype against the reference.
errors: $(INSTALLED)
	$(BIN)/pytest -q tests/test_backends.py -k matches_the_reference

pictures: $(INSTALLED)
	$(BIN)/python docs/kernels.py

# Times everything on this machine, prints every target and refreshes docs/benchmarks.md. About fifteen minutes.
BENCH := $(VENV)/bench-installed
bench: $(BENCH)
	$(BIN)/python -m benchmarks.memory
	$(BIN)/python -m benchmarks.rivals
	$(BIN)/python -m benchmarks.hook
	$(BIN)/python -m benchmarks.scaling
	$(BIN)/python -m benchmarks.report

$(BENCH): $(INSTALLED)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[bench]"
	touch $@

# The kernels' own test: AddressSanitizer and UndefinedBehaviorSanitizer, then valgrind where it is installed.
test-native:
	csrc/tests/run address 300
	if command -v valgrind; then csrc/tests/run valgrind 20; fi

# Compile the kernels again after editing csrc/.
native: $(INSTALLED)
	$(BIN)/pip install --quiet --no-build-isolation --no-deps --editable .

$(INSTALLED): pyproject.toml constraints.txt setup.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[lab,dev,docs]"
	touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
