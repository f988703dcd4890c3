# Afflux: `make help` lists what there is. Everything written goes under build/ or .venv/.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
LOSS ?= 0
# What the demo simulates: the engine (rtl), or a whole board from pins to pins (board).
AGGREGATOR ?= rtl
PYTEST_ARGS ?=
BENCH_ARGS ?=
SYNTH_ARGS ?=
BOARD ?= ecpix5-85f
BITSTREAM_ARGS ?=
MUTATION_ARGS ?=
# For opennic, such as "--nodes 2 --functions 4".
OPENNIC_ARGS ?=
PORTS ?= 1
# For project and cmac: settings of the board, see --help.
PROJECT_ARGS ?=
FORMAL_ARGS ?=
NATIVE_TEST_ARGS ?=
# Those that tests.compat names.
COMPAT_VERSIONS ?=
# For compat: PyTorch's test/distributed/test_c10d_fault_tolerance.py, in a checkout of it.
TORCH_FAULT_TOLERANCE ?=
WHEELS_ARGS ?=
# For nightly: the targets to run, instead of all.
NIGHTLY ?=
NIGHTLY_ARGS ?=
CONFORMANCE_ARGS ?=
FRAMES ?= 1000000
CHAOS_ARGS ?=
# Seconds since 1970, for the gateware's register; SOURCE_DATE_EPOCH makes equal builds equal.
BUILD_TIME = $(or $(SOURCE_DATE_EPOCH),$(shell date +%s))
# First 32 bits of the commit, likewise; 0 if the gateware differs from it.
BUILD_COMMIT = $(or $(shell git diff --quiet HEAD -- hdl 2>/dev/null && \
	printf %d "0x$$(git rev-parse HEAD | cut -c 1-8)"),0)
# What board-figures places: those of docs/boards.json.
BOARD_BUILDS := colorlight-5a-75b colorlight-5a-75b-2-ports ecpix5-45f ecpix5-85f versa-ecp5 \
	versa-ecp5-2-ports
BUILD = --build-time "$(BUILD_TIME)" --build-commit "$(BUILD_COMMIT)"

PY := .venv/bin/python
# As many processes as keep the cores busy and have memory (tests/conftest.py); one that has nothing
# left takes tests from another. PYTEST_ARGS comes behind, so `-n 0` or `--durations=0` there counts.
PYTEST := $(PY) -m pytest -n auto --dist worksteal --durations=15
INSTALLED := .venv/afflux-setup.stamp
# The C++ is newer than the extension that is installed: then it is compiled again.
SETUP := .venv/afflux-native.stamp
# What stands between torch and a group, compiled before a test or a demo waits for it. It goes by
# torch and its own sources; where it does not compile, groups do without it.
ADAPTER := .venv/afflux-adapter.stamp
ADAPTER_SOURCES := $(wildcard host/afflux/adapters/native/*) host/afflux/adapters/native.py \
	drivers/afflux_drivers/c_api.h drivers/afflux_drivers/turn.h
NATIVE_SOURCES := $(shell find drivers/native -name '*.[ch]pp' -o -name '*.h' -o -name CMakeLists.txt)
# What cpp_headers.py writes is not formatted by hand either.
FORMATTED := $(filter-out drivers/native/contract/%, \
	$(filter %pp %.h, $(NATIVE_SOURCES) $(ADAPTER_SOURCES)))
ROOTS := hdl drivers sim host benchmarks docs examples

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo '  variables, with what they are now:'
	@echo '  PYTHON=$(PYTHON)          the interpreter that setup creates .venv with'
	@echo '  AGGREGATOR=$(AGGREGATOR)          what the demo simulates: rtl, the engine; board, a whole board'
	@echo '  LOSS=$(LOSS)                  share of packets that the demo loses each way, 0 to 0.5'
	@echo '  PYTEST_ARGS="$(PYTEST_ARGS)"          for test, test-long and sim, as "-n 1" or "-k wire -x"'
	@echo '  BENCH_ARGS="$(BENCH_ARGS)"           for bench and the other bench-*'
	@echo '  BOARD=$(BOARD)       for bitstream, project, cmac and opennic, each of which has its own'
	@echo '  BITSTREAM_ARGS="$(BITSTREAM_ARGS)"       for bitstream: --help lists settings and sizes'
	@echo '  PROJECT_ARGS="$(PROJECT_ARGS)"         for project and cmac: --help lists settings'
	@echo '  PORTS=$(PORTS)                 for opennic: ports of 100 Gbit/s, 1 or 2'
	@echo '  OPENNIC_ARGS="$(OPENNIC_ARGS)"         for opennic, such as "--nodes 2 --functions 4"'
	@echo '  FRAMES=$(FRAMES)          for fuzz'
	@echo '  COMPAT_VERSIONS="$(COMPAT_VERSIONS)"      for compat, such as "2.14 2.15.0"'
	@echo '  TORCH_FAULT_TOLERANCE="$(TORCH_FAULT_TOLERANCE)" for compat: a file of PyTorch, whose tests run too'
	@echo '  NIGHTLY="$(NIGHTLY)"              for nightly, such as "fuzz formal"; it runs all otherwise'
	@echo '  SYNTH_ARGS, FORMAL_ARGS, MUTATION_ARGS, CONFORMANCE_ARGS, NATIVE_TEST_ARGS, WHEELS_ARGS,'
	@echo '  CHAOS_ARGS   likewise'

.PHONY: setup
setup: $(ADAPTER) ## create .venv and install the project into it (the others do so first)

$(INSTALLED): pyproject.toml constraints.txt tools/setup_venv.sh
	PYTHON="$(PYTHON)" tools/setup_venv.sh

$(SETUP): $(INSTALLED) $(NATIVE_SOURCES) tools/build_native.sh
	tools/build_native.sh

$(ADAPTER): $(ADAPTER_SOURCES) $(INSTALLED) | $(SETUP)
	@if $(PY) -m afflux.adapters.native >/dev/null; then touch $@; fi

.PHONY: native
native: $(INSTALLED) ## compile the C++ and put the extension into .venv
	tools/build_native.sh

.PHONY: native-test
native-test: $(INSTALLED) ## the C++ tests: plain, and under address, undefined and thread sanitizers
	tools/test_native.sh $(NATIVE_TEST_ARGS)

.PHONY: demo
demo: $(ADAPTER) ## train a small network through the simulated engine; AGGREGATOR=board, LOSS=0.01
	$(PY) -m afflux.demo --loss "$(LOSS)" --aggregator "$(AGGREGATOR)"

.PHONY: test
test: $(ADAPTER) ## all tests but those of test-long, those in the simulator included
	$(PYTEST) tests $(PYTEST_ARGS)

.PHONY: test-long
test-long: $(ADAPTER) ## the tests that test leaves out: more planted bugs, the second simulator
	$(PYTEST) tests -m long $(PYTEST_ARGS)

.PHONY: gpu-test
gpu-test: $(ADAPTER) ## tensors on a GPU and NCCL's plugin, with speeds; without a GPU it says so
	$(PY) -m tests.gpu
	$(PY) -m pytest -rs -s tests/gpu $(PYTEST_ARGS)

.PHONY: sim
sim: $(SETUP) ## only the cocotb tests: engine, node, port and board
	$(PYTEST) -m "" tests/sim/test_cocotb_*.py $(PYTEST_ARGS)

.PHONY: lint
lint: $(SETUP) ## formatting and lints, of the C++ too
	.venv/bin/clang-format --dry-run --Werror $(FORMATTED)
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .

.PHONY: types
types: $(SETUP) ## type checks
	$(PY) -m mypy

.PHONY: verilog
verilog: $(SETUP) ## the Verilog of engine and node, into build/verilog
	$(PY) -m afflux_hdl.engine.verilog -o build/verilog $(BUILD)
	$(PY) -m afflux_hdl.node.verilog -o build/verilog $(BUILD)

.PHONY: opennic
opennic: $(SETUP) ## a plugin of the OpenNIC shell for BOARD=au50|au55c|au200|au250|au280, PORTS=1|2
	$(PY) -m afflux_hdl.opennic --board "$(BOARD)" --ports "$(PORTS)" $(BUILD) \
		-o "build/opennic/$(BOARD)" $(OPENNIC_ARGS)

.PHONY: project cmac
project: $(SETUP) ## a Vivado project for BOARD=as02mc04, into build/project
	$(PY) -m afflux_hdl.vivado "$(BOARD)" $(BUILD) \
		-o "build/project/$(BOARD)" $(PROJECT_ARGS)

cmac: project ## the node behind AMD's CMAC for BOARD=au50|au55c|au200|au250|au280, there too

.PHONY: bench
bench: $(ADAPTER) ## speed of the simulated engine, into build/bench/engine.json
	@mkdir -p build/bench
	$(PY) -m benchmarks.training $(BENCH_ARGS)

.PHONY: bench-engine
bench-engine: $(SETUP) ## rates, stalls and latencies of the gateware, into build/bench/engine.json
	@mkdir -p build/bench
	$(PY) -m benchmarks.gateware $(BENCH_ARGS)

.PHONY: bench-host
bench-host: $(ADAPTER) ## speed between ranks of this host, beside Gloo, into build/bench/host.json
	@mkdir -p build/bench
	$(PY) -m benchmarks.ranks.packets
	$(PY) -m benchmarks.ranks $(BENCH_ARGS)

.PHONY: bench-network
bench-network: $(ADAPTER) ## speed between hosts, as namespaces here, into build/bench/network.json
	@mkdir -p build/bench
	$(PY) -m benchmarks.network $(BENCH_ARGS)
	test -n "$(BENCH_ARGS)" || $(PY) -m benchmarks.network.shares
	test -n "$(BENCH_ARGS)" || $(PY) -m benchmarks.network.decode

.PHONY: bench-sparse
bench-sparse: $(ADAPTER) ## the same of sparse tensors and schemes, into build/bench/sparse.json
	@mkdir -p build/bench
	$(PY) -m benchmarks.network --suite sparse $(BENCH_ARGS)
	test -n "$(BENCH_ARGS)" || $(PY) -m benchmarks.network.overlap --output build/bench/sparse.json

.PHONY: bench-overlap
bench-overlap: $(ADAPTER) ## steps of training by priority, between hosts, into build/bench/overlap.json
	@mkdir -p build/bench
	$(PY) -m benchmarks.network.overlap $(BENCH_ARGS)

.PHONY: bench-training
bench-training: $(ADAPTER) ## trainings with each scheme, and to a loss between hosts, into build/bench/convergence.json
	@mkdir -p build/bench
	$(PY) -m benchmarks.training.schemes $(BENCH_ARGS)
	test -n "$(BENCH_ARGS)" || $(PY) -m benchmarks.network.to_loss

.PHONY: benchmarks-age
benchmarks-age: $(SETUP) ## which tables of figures in docs/ are older than the code that they measure
	$(PY) -m benchmarks.report.age

.PHONY: synth
synth: $(SETUP) ## cost of the gateware on UltraScale+ and ECP5, and docs/cost.md; takes minutes
	$(PY) -m afflux_hdl.synthesis $(SYNTH_ARGS)
	$(PY) -m docs.generate.measured_tables docs build/synth.json

.PHONY: bitstream
bitstream: $(SETUP) ## a bitstream for an open BOARD, into build/boards; BITSTREAM_ARGS="--address dhcp" and so on
	$(PY) -m afflux_hdl.boards "$(BOARD)" $(BUILD) $(BITSTREAM_ARGS)

.PHONY: board-figures
board-figures: $(SETUP) ## all open boards placed, and the tables of docs/boards.md; takes hours
	@status=0; \
	for build in $(BOARD_BUILDS); do \
		$(PY) -m afflux_hdl.boards $${build%-2-ports} $(BUILD) \
			$$(case $$build in *-2-ports) echo --ports 2;; esac) || status=1; \
	done; \
	$(PY) -m docs.generate.measured_tables docs build/boards.json && exit $$status

.PHONY: formal
formal: $(SETUP) ## all proofs about the gateware
	$(PY) -m tests.formal $(FORMAL_ARGS)

.PHONY: mutation
mutation: $(SETUP) ## which of 1,200 mutants of engine and node the tests catch, into build/mutation.json
	$(PY) -m tests.mutation $(MUTATION_ARGS)

.PHONY: mutation-native
mutation-native: $(SETUP) ## which of some bugs in the C++ of aggregator and worker the tests catch
	$(PY) -m tests.mutation.native $(MUTATION_ARGS)

.PHONY: coverage
coverage: $(SETUP) ## lines, toggles and states of the engine that the tests reach, into build/coverage
	$(PY) -m tests.coverage
	$(PY) -m tests.coverage.functional

.PHONY: second-simulator
second-simulator: $(SETUP) ## the smoke battery on CXXRTL and on Verilator: no pin differs
	$(PY) -m tests.second_simulator

.PHONY: conformance
conformance: $(ADAPTER) ## scripts that people run and PyTorch's own tests, on Gloo and on Afflux
	@status=0; \
	$(PY) -m tests.conformance $(CONFORMANCE_ARGS) || status=1; \
	$(PY) -m tests.conformance --ranks 4 $(CONFORMANCE_ARGS) || status=1; \
	$(PY) -m tests.conformance.torch_suite || status=1; \
	$(PY) -m tests.conformance.torch_suite --ranks 8 --only group || status=1; \
	exit $$status

.PHONY: chaos soak
chaos: $(ADAPTER) ## kills and faults at random moments, every sum judged; goes on where it was
	$(PY) -m tests.chaos --minutes 60 $(CHAOS_ARGS)

soak: $(ADAPTER) ## an hour of faults that end no process: memory, descriptors and threads stay
	$(PY) -m tests.chaos --soak --minutes 60 $(CHAOS_ARGS)

.PHONY: explore
explore: $(ADAPTER) ## aggregators that die and come back, in virtual time: ten million steps
	$(PY) -m tests.explorer $(EXPLORE_ARGS)

.PHONY: fuzz
fuzz: $(SETUP) ## random and mutated frames through the gateware
	$(PY) -m tests.fuzz --frames "$(FRAMES)"

.PHONY: floods
floods: $(SETUP) ## floods of frames of every size through the gateware, at its full rate
	$(PY) -m tests.checks.floods

.PHONY: compat
compat: $(SETUP) ## some tests on each version of torch in COMPAT_VERSIONS; fetches torch
	COMPAT_VERSIONS="$(COMPAT_VERSIONS)" TORCH_FAULT_TOLERANCE="$(TORCH_FAULT_TOLERANCE)" \
		$(PY) -m tests.compat

.PHONY: nightly
nightly: $(ADAPTER) ## all long checks one after another, with a table at the end; NIGHTLY="fuzz formal"
	$(PY) -m tests.nightly $(NIGHTLY) $(NIGHTLY_ARGS)

.PHONY: wheels
wheels: $(SETUP) ## manylinux wheels for Python 3.11 and for 3.12 on, into build/wheels, each tried
	PYTHON="$(PYTHON)" $(PY) -m tests.wheels $(WHEELS_ARGS)

.PHONY: docs
docs: $(SETUP) ## write the generated pages in docs/ again
	$(PY) -m docs.generate.contract_tables docs
	$(PY) -m afflux_hdl.contract.cpp_headers drivers/native/contract
	$(PY) -m docs.generate.rooms docs/modules.md
	$(PY) -m docs.generate.worked_example docs/protocol.md
	$(PY) -m docs.generate.slot_life docs/plots/slot_life.svg
	$(PY) -m docs.generate.scaling_tables docs/scaling.md
	$(PY) -m docs.generate.vectors docs/vectors
	$(PY) -m docs.generate.measured_tables docs
	$(PY) -m docs.generate.chaos_table docs
	$(PY) -m docs.generate.plots docs
	$(PY) -m docs.generate.command_reference docs/commands.md
	$(PY) -m docs.generate.environment_reference docs/environment.md

.PHONY: site site-check
site: $(SETUP) ## the site, into build/site; fails for broken links and pages without a place
	$(PY) -m docs.generate.site

site-check: site ## the site in a browser, as wide as a phone, light and dark; needs Chromium
	@$(PY) -c 'import playwright' 2>/dev/null || \
		$(PY) -m pip install --quiet --constraint constraints.txt playwright
	$(PY) -m tests.site

.PHONY: engine-page
engine-page: $(SETUP) ## the page that replays the engine cycle by cycle, into build/site/engine
	$(PY) -m docs.generate.engine_page build/site/engine

.PHONY: clean
clean: ## remove build/ and Python's caches, but not .venv
	rm -rf build .venv/afflux-native.stamp $(ADAPTER)
	find $(ROOTS) tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
