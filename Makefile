# Afflux: `make help` lists what there is. Everything written goes under build/ or .venv/.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
LOSS ?= 0
PYTEST_ARGS ?=
BENCH_ARGS ?=

PY := .venv/bin/python
SETUP := .venv/afflux-setup.stamp
ROOTS := hdl drivers sim host

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo '  variables, with what they are now:'
	@echo '  PYTHON=$(PYTHON)          the interpreter that setup creates .venv with'
	@echo '  LOSS=$(LOSS)                  share of packets that the demo loses, 0 to 1'
	@echo '  PYTEST_ARGS="$(PYTEST_ARGS)"          for test and sim, such as "-n 2" or "-k wire -x"'
	@echo '  BENCH_ARGS="$(BENCH_ARGS)"           for bench'

.PHONY: setup
setup: $(SETUP) ## create .venv and install the project into it (the others do so first)

$(SETUP): pyproject.toml constraints.txt tools/setup_venv.sh
	PYTHON="$(PYTHON)" tools/setup_venv.sh

.PHONY: demo
demo: $(SETUP) ## train a small network through the simulated engine; LOSS=0.01 loses packets
	$(PY) -m afflux.demo --loss "$(LOSS)"

.PHONY: test
test: $(SETUP) ## all tests, those in the simulator included
	$(PY) -m pytest tests $(PYTEST_ARGS)

.PHONY: sim
sim: $(SETUP) ## only the cocotb tests of the engine
	$(PY) -m pytest tests/cocotb $(PYTEST_ARGS)

.PHONY: lint
lint: $(SETUP) ## formatting and lints
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .

.PHONY: types
types: $(SETUP) ## type checks of the four packages
	$(PY) -m mypy

.PHONY: verilog
verilog: $(SETUP) ## the engine's Verilog, into build/verilog
	$(PY) -m afflux_hdl.verilog -o build/verilog

.PHONY: bench
bench: $(SETUP) ## speed of the simulated engine, into build/bench/engine.json
	@mkdir -p build/bench
	$(PY) -m afflux.bench.engine $(BENCH_ARGS)

.PHONY: docs
docs: $(SETUP) ## write the generated pages in docs/ again
	$(PY) -m afflux_hdl.reference docs

.PHONY: clean
clean: ## remove build/ and Python's caches, but not .venv
	rm -rf build
	find $(ROOTS) tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
