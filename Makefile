# opsk: the targets a person needs; `make` alone lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
# The system's own Python where it will do: one that pyenv built is mostly built without optimisation, and nearly twice as
# slow.
FIT = import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))
SYSTEM_PYTHON := $(shell /usr/bin/python3 -c '$(FIT)' 2>/dev/null && echo /usr/bin/python3 || echo python3)
PYTHON ?= $(SYSTEM_PYTHON)
VENV := .venv
BIN := $(VENV)/bin

# The tests and the demo start thousands of Python processes. Where byte code is not written, as some containers ask, each
# compiles every module that it imports again, and most of their time goes into that.
unexport PYTHONDONTWRITEBYTECODE

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

system:
	@deploy/install-system-packages

test-system:
	@deploy/install-system-packages --tests

$(VENV)/.ready: requirements.lock pyproject.toml
	@PYTHON="$(PYTHON)" deploy/install-python-packages
	@touch $@

# Both wait for downloads: side by side, unless this Python first needs a system package to make a .venv.
CAN_MAKE_VENV := $(shell $(PYTHON) -c '$(FIT)' 2>/dev/null && echo yes)
INSTALL = $(MAKE) --no-print-directory --silent $(if $(CAN_MAKE_VENV),--jobs=2)

setup:  ## install what opsk needs: system packages (as root) and .venv
	+@$(INSTALL) system $(VENV)/.ready

test-setup:
	+@$(INSTALL) test-system $(VENV)/.ready

SIDE_BY_SIDE = $(MAKE) --no-print-directory --keep-going --output-sync=target --jobs

check: $(VENV)/.ready  ## formatting, lint, types, import layers
	+@$(SIDE_BY_SIDE) check-types check-layers check-style

check-style:
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .

check-types:
	@$(BIN)/mypy

check-layers:
	@$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

fix: $(VENV)/.ready  ## let ruff format and repair what it can
	@$(BIN)/ruff check --quiet --fix . ; $(BIN)/ruff format --quiet .

# Every test is in one part. The core keeps processors busy: it runs first and alone, one worker a processor. The others
# wait for daemons more than they work, so they run side by side. Each part is shown at its end, with its slowest tests.
# TESTS="tests/opsk/lab" runs these in place of all.
PYTEST = $(BIN)/python -m pytest -q --durations=25 --durations-min=1.0
# The longest begin first, so that no long one is left for the end. Three a processor keep it busy, since each waits a
# third of its time and more: 1,052 s on two, where two and a half a processor took 1,162. With more, what a test starts is
# late.
WAITING = part-unstable part-installed part-bookworm part-rest part-trixie part-tui part-failures part-bare part-deploy part-lab part-exporters part-packaging part-soak
AT_ONCE := $(shell echo $$((3 * $$(nproc 2>/dev/null || echo 2))))
part-core: SELECTED = -n logical --maxprocesses=16 --dist worksteal tests/opsk tests/jobcheck
part-rest: SELECTED = $(addprefix --ignore=tests/,integration soak bare_root opsk jobcheck deploy packaging tui)
part-tui: SELECTED = tests/tui
part-deploy: SELECTED = tests/deploy
part-packaging: SELECTED = tests/packaging
# Each of both installs a whole machine: in a row they are the longest part.
part-bookworm: SELECTED = tests/bare_root/test_debian_12.py
part-bare: SELECTED = --ignore=tests/bare_root/test_debian_12.py tests/bare_root
FAILURES = $(patsubst %,tests/integration/slurm/test_%.py,remap_after_events remap postmortem store_fills place_inside)
part-failures: SELECTED = -m "not trixie and not unstable" $(FAILURES)
part-installed: SELECTED = -m "not trixie and not unstable" $(addprefix --ignore=,$(FAILURES)) tests/integration/slurm
part-exporters: SELECTED = -m "not trixie and not unstable" $(addprefix --ignore=tests/integration/,slurm lab) tests/integration
part-lab: SELECTED = -m "not trixie and not unstable" tests/integration/lab
part-trixie: SELECTED = -m trixie tests/integration
part-unstable: SELECTED = -m unstable tests/integration
part-soak: SELECTED = tests/soak
part-core $(WAITING):
	@$(PYTEST) $(SELECTED)

ifdef TESTS
test: test-setup
	@$(PYTEST) $(TESTS)
else
# Types and style need Python's packages alone: they are checked while apt still installs what the core's tests run.
core: test-system $(VENV)/.ready
	+@$(MAKE) --no-print-directory --silent part-core

test: $(if $(CAN_MAKE_VENV),,test-setup)  ## make check and every test (TESTS="tests/opsk/lab ...": only these)
	@echo "tests: the core beside make check, then those that wait for daemons side by side; each part is shown at its end"
	+@failed=0; $(MAKE) --no-print-directory --silent --keep-going --jobs check core || failed=1; \
	$(MAKE) --no-print-directory --silent --question $(VENV)/.ready || exit 1; \
	$(SIDE_BY_SIDE)=$(AT_ONCE) $(WAITING) || failed=1; exit $$failed
endif

quick: setup  ## make check and the core's tests: the inner loop
	+@$(SIDE_BY_SIDE) check part-core

slurm-roots:  ## make the Debian roots with other releases of Slurm that tests run (as root; make test does it as well)
	@tests/integration/releases/make-slurm-root trixie unstable

slurm-matrix: test-setup slurm-roots  ## the tests on the other releases of Slurm, alone
	+@$(SIDE_BY_SIDE) part-unstable part-trixie

demo: setup  ## start a lab cluster, submit the examples, show the advice
	@$(BIN)/python examples/demo.py

golden: $(VENV)/.ready  ## accept what the golden tests print now, to be read in review
	@OPSK_GOLDEN=write $(BIN)/python -m pytest -q tests || true

docs: $(VENV)/.ready  ## write the generated pages and all outputs that pages show again (needs the lab)
	@$(BIN)/python docs/programs/generate.py
	@$(BIN)/python docs/programs/metrics.py
	@$(BIN)/python docs/programs/store_tables.py
	@$(BIN)/python docs/programs/fabric_pictures.py
	@$(BIN)/python docs/programs/grafana_pictures.py
	@$(BIN)/python docs/programs/screenshots.py
	@$(BIN)/python docs/programs/outputs.py

site: $(VENV)/.ready  ## the docs as a site, build/site/index.html; fails on a lost link or page
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet && echo "site: build/site/index.html"

bench: $(VENV)/.ready  ## measure every budget into docs/performance.md, half an hour (RUNS=runs.csv CALCULON=clone for two more)
	@$(BIN)/python -m benchmarks.report

fuzz: $(VENV)/.ready  ## 20,000 hostile scripts and questions through the submit path (OPSK_FUZZ=n, OPSK_FUZZ_FROM=first)
	@OPSK_FUZZ=$${OPSK_FUZZ:-10000} $(BIN)/python -m pytest -q tests/jobcheck/test_fuzz.py tests/jobcheck/test_fuzz_advisor.py

soak: test-system $(VENV)/.ready  ## 64 nodes, 1,000 jobs, 20 minutes of faults: does everything hold? (SOAK="--short --seed 1")
	@$(BIN)/python -m tests.soak --json soak.json $(SOAK)

packages: $(VENV)/.ready  ## wheel, movable tree, .deb, .rpm, man pages and SBOM of this checkout into dist/
	@$(BIN)/python -m deploy.packages.build

audit: $(VENV)/.ready  ## known holes in what requirements.lock pins (OFFLINE=skip: 0 where no database can be reached)
	@$(BIN)/python -m deploy.packages.audit $(if $(filter skip,$(OFFLINE)),--skip-offline)

release: test-system  ## all packages from a clean clone, installed into empty roots to prove them (OPSK_RELEASE_FINAL=1: no draft)
	@deploy/packages/release

lock:  ## pin requirements.lock again (needs uv)
	uv pip compile --universal --python-version 3.11 --no-emit-index-url --no-header --no-annotate \
	  --extra dev --no-emit-package opsk --generate-hashes pyproject.toml -o requirements.lock --upgrade --quiet

.PHONY: help system test-system setup test-setup check check-style check-types check-layers fix part-core core $(WAITING) test quick slurm-roots slurm-matrix demo golden docs site bench fuzz soak packages audit release lock
