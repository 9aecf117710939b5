# Two commands do everything on a machine that has Python and make:
#   make demo   install, then train a small CNN with and without riesz and compare
#   make test   install, then lint, types and all tests
# and one measures:
#   make bench  every claim about speed, against its target

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed

# Threads that wait without spinning: on a machine that is shared, spinning ones take the cores from each other.
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: demo test test-all lint errors pictures clean

demo: $(INSTALLED)
	$(BIN)/riesz demo

# Two processes: whole files go to either.
TESTS := $(BIN)/pytest --numprocesses 2 --dist loadfile

test: $(INSTALLED) lint
	$(TESTS)

test-all: test
	$(BIN)/pytest -m slow

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# The largest error of every backend and metric: by dtype against the reference, and by length, on columns that cancel,
# against a solve in extended precision.
ERRORS := tests/riesz/backends/test_backends.py tests/riesz/backends/test_cancelling_columns.py
errors: $(INSTALLED)
	$(BIN)/pytest -q $(ERRORS) -k "matches_the_reference or high_modes"

pictures: $(INSTALLED)
	$(BIN)/riesz figure kernels -o docs/kernels.svg

# The page of evidence and the full report, recomputed from the stored trials; needs no data and trains nothing.
evidence: $(INSTALLED)
	$(BIN)/python -m evidence.page
	$(BIN)/riesz report evidence/trials -o evidence/report.html

# Trains one trial of the evidence again and compares: make reproduce ID=a570b30e31c1
reproduce: $(INSTALLED)
	$(BIN)/python -m evidence.reproduce $(ID)

.PHONY: evidence reproduce bench test-native native

# Runs every benchmark, prints every target and refreshes docs/benchmarks.md; results go to benchmarks/results/. About
# half an hour; longer on a busy machine. Threads wait as they would for a user, not as set above for tests.
BENCH := $(VENV)/bench-installed
TIMED := env -u OMP_WAIT_POLICY $(BIN)/python -m
bench: $(BENCH)
	$(TIMED) benchmarks.memory
	$(TIMED) benchmarks.rivals
	$(TIMED) benchmarks.hook
	$(TIMED) benchmarks.scaling
	$(TIMED) benchmarks.sharding
	$(TIMED) benchmarks.throughput
	$(TIMED) benchmarks.report

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
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[lab,dev,docs,parquet,ray]"
	touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
