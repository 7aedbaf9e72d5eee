# make demo | test | quick | check | docs | bench | fuzz | torture | clean. Needs python3 (3.11 or newer) with venv, and make; all else goes to .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
LISTS := pyproject.toml constraints.txt
# LOCKED=1: nothing is installed whose hash is not in requirements/, but for the project itself.
LOCKED ?=
HASHED = $(PIP) --require-hashes --only-binary :all: -r requirements/torch.lock -r requirements/$(1).lock
INSTALL = $(if $(LOCKED),$(call HASHED,$(1)) && $(PIP) --no-deps --no-build-isolation,$(PIP) -c constraints.txt)

.PHONY: demo test quick check docs bench fuzz torture clean
.NOTPARALLEL:

demo: $(VENV)/.runtime
	@$(BIN)/daydream demo

test: check
	@$(BIN)/python tests/support/chromium.py
	@$(BIN)/python -m pytest

# The tests of a minute, for a change on its way; `make test` runs all.
quick: check
	@$(BIN)/python -m pytest -m "not slow"

check: $(VENV)/.dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

# The documentation as a site that opens offline: site/index.html. A warning, such as a dead link, is an error.
SITE ?= site

docs: $(VENV)/.docs
	@$(BIN)/python -m sphinx -W --keep-going -q -E -j 2 -b html -d $(SITE)/.doctrees docs $(SITE)
	@echo "$(SITE)/index.html"

bench: $(VENV)/.runtime
	@$(BIN)/python benchmarks/startup.py --device cpu --repeat 3
	@$(BIN)/python benchmarks/step.py --device cpu --batch 32 --epochs 2 --per-class 20
	@$(BIN)/python benchmarks/bank.py --device cpu --classes 10 50 --samples 2 20 --width 32 128 --repeat 3
	@$(BIN)/python benchmarks/parts.py --device cpu --images 1000 --repeat 3
	@$(BIN)/python benchmarks/loading.py --repeat 3
	@$(BIN)/python benchmarks/scale.py --device cpu --most 10 --images 200 --repeat 2

# FUZZ: cases of each kind. KILLS: of runs, lessons and the server; MINUTES: for how long at most.
FUZZ ?= 2000
KILLS ?= 500
MINUTES ?= 60

fuzz: $(VENV)/.dev
	@FUZZ=$(FUZZ) $(BIN)/python -m pytest -n0 tests/trust/test_fuzz.py tests/serve/test_rude_requests.py

torture: $(VENV)/.dev
	@$(BIN)/python tests/support/torture.py --kills $(KILLS) --minutes $(MINUTES)

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@echo "runs/ is kept"

# Three stamps: what a run needs, and what the checks or the site need on top. Each is installed once for each change of the lists.

$(VENV)/.runtime: $(LISTS) | $(BIN)/python
	@echo "installing daydream and torch in $(VENV) (once; a minute or more)"
	@$(call INSTALL,demo) -e '.[report]'
	@touch $@

$(VENV)/.dev: $(LISTS) | $(BIN)/python
	@echo "installing daydream, torch and the checks in $(VENV) (once; a minute or more)"
	@$(call INSTALL,tests) -e '.[dev]'
	@touch $(VENV)/.runtime $(VENV)/.docs $@

$(VENV)/.docs: $(LISTS) | $(BIN)/python
	@echo "installing daydream, torch and Sphinx in $(VENV) (once; a minute or more)"
	@$(call INSTALL,docs) -e '.[docs]'
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "daydream needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "daydream needs Python's venv module (on Debian and Ubuntu: apt install python3-venv)"; exit 1; }
	@$(PYTHON) -m venv $(VENV)
