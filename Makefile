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

# The largest error of every backend, metric and dtype against the reference.
errors: $(INSTALLED)
	$(BIN)/pytest -q tests/riesz/backends/test_backends.py -k matches_the_reference

pictures: $(INSTALLED)
	$(BIN)/python docs/kernels.py

# The page of evidence and the full report, recomputed from the stored trials; needs no data and trains nothing.
evidence: $(INSTALLED)
	$(BIN)/python -m evidence.page
	$(BIN)/riesz report evidence/trials -o evidence/report.html

# Trains one trial of the evidence again and compares: make reproduce ID=a570b30e31c1
reproduce: $(INSTALLED)
	$(BIN)/python -m evidence.reproduce $(ID)

.PHONY: evidence reproduce bench test-native native

# Times everything on this machine, prints every target and refreshes docs/benchmarks.md. Five to fifteen minutes, as
# quiet as the machine is. Threads wait as they would for a user, whatever is set for tests.
BENCH := $(VENV)/bench-installed
TIMED := env -u OMP_WAIT_POLICY $(BIN)/python -m
bench: $(BENCH)
	$(TIMED) benchmarks.memory
	$(TIMED) benchmarks.rivals
	$(TIMED) benchmarks.hook
	$(TIMED) benchmarks.scaling
	$(TIMED) benchmarks.report

# The same on a GPU: correctness, times, launches, the hook's share; writes benchmarks/results/gpu-<device>.csv.
.PHONY: bench-gpu
bench-gpu: $(INSTALLED)
	$(BIN)/python -m benchmarks.gpu

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
