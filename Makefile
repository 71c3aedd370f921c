# Everything works through these targets; CI runs the same ones.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# CUDA 13, or 12 for NVIDIA drivers older than 580 and for V100; an environment remembers it.
ifneq ($(origin CUDA),command line)
CUDA := $(or $(shell cat $(VENV)/.cuda 2>/dev/null),13)
endif
$(if $(filter 12 13,$(CUDA)),,$(error CUDA=$(CUDA): there are locks for 12 and 13))
LOCK := requirements$(if $(filter 12,$(CUDA)),-cuda12).lock
READY := $(VENV)/.ready-$(CUDA)
INSTALL = $(BIN)/uv pip install --quiet --python $(BIN)/python --compile-bytecode --constraint $(LOCK) --editable
ALL_OF := $(BIN)/vitinit run
GO_ON := --retry-failed --wait
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal
COMMA := ,

.PHONY: help setup bench-small bench-standard bench-catalogue bench-smoke bench-speed bench-costs bench-gpu results test docs check format lock \
  slurm-up slurm-down clean

help: ## This list
	@grep -hE '^[a-z%-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

setup: $(READY) ## The environment in .venv, from the hashed lock
$(READY): $(LOCK) pyproject.toml
	@$(PYTHON) -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || \
	  { echo "needs Python 3.10 or newer that can make environments (Debian: python3-venv): make PYTHON=python3.12"; exit 2; }
	@printf 'setting up %s: about a minute, more where packages must be fetched ... ' $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install -qq --disable-pip-version-check uv
	@$(INSTALL) '.[benchmark,dev]'
	@$(BIN)/python -c 'from vitinit.benchmark.grids import grid; [grid.load(name) for name in grid.names()]' # keeps what takes torch
	@echo $(CUDA) >$(VENV)/.cuda; touch $@; echo done
$(VENV)/.with-%: $(READY)
	@$(INSTALL) '.[benchmark,dev,$*]' && touch $@
ffcv: $(VENV)/.with-ffcv ## The loader for data larger than memory (Debian: g++ python3-dev pkg-config libopencv-dev libturbojpeg0-dev)

bench-small: setup ## The main job: train six initialisations, print a table
	@$(ALL_OF) small $(GO_ON); status=$$?; $(BIN)/python -m analysis.figures --study small && \
	  $(BIN)/python -m analysis.tables --study small && exit $$status
bench-smoke: setup ## The same path in seconds
	$(ALL_OF) smoke --wait && $(BIN)/python -m analysis.tables --study smoke && \
	  $(BIN)/python -m analysis.figures --study smoke
bench-standard: setup ## The standard protocol, a day; can be resumed
	$(ALL_OF) standard-mechanism $(GO_ON) && $(ALL_OF) standard-tuning $(GO_ON) && \
	  $(ALL_OF) standard --seeds 0 --keep-maps $(GO_ON) && $(ALL_OF) standard $(GO_ON)
bench-catalogue: setup ## Bases, methods and placebos, hours; can be resumed
	$(ALL_OF) catalogue-small-tuning $(GO_ON) && $(ALL_OF) catalogue-small $(GO_ON)
bench-speed: setup ## Speed of loaders and augmentation
	PYTHONPATH=. $(BIN)/python tests/scale/speed.py loaders jpegs
bench-costs: setup ## Costs of asking, beside plain scripts of the same work
	PYTHONPATH=. $(BIN)/python tests/scale/costs.py
bench-gpu: setup ## On a CUDA GPU, four minutes: steps, loaders, runs at once
	PYTHONPATH=. $(BIN)/python tests/scale/speed.py loaders steps together jpegs
results: setup ## Pages of the committed studies, from records
	$(BIN)/python -m analysis.pages --results results/reference

test: setup ## The tests, on every core; those of the next line on request
	$(PYTEST)
test-%: setup ## long, slow, examples, wheel, latex, browser, ffcv, slurm; several: long,wheel
	$(PYTEST) -m '$(subst $(COMMA), or ,$*)'
test-ffcv: $(VENV)/.with-ffcv
test-examples: $(VENV)/.with-libraries
test-slurm: PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile
test-faults: setup ## Kill, race, damage and starve runs, with a report
	FAULTS=all $(PYTEST) -m long tests/faults
test-libraries: $(VENV)/.with-libraries ## Models and data of other libraries
	$(PYTEST) tests/initializers tests/benchmark -k 'hugging or transformers'
test-gpu: setup ## On a CUDA GPU, three minutes: bits, loaders, compile, memory
	@PYTHONPATH=. $(BIN)/python tests/scale/speed.py
	$(PYTEST) -n 0 -ra -m slow tests/slow


docs: $(VENV)/.with-docs ## Texts and docstrings as a site: site/index.html
	@rm -rf site
	$(BIN)/python -m sphinx -W --keep-going --quiet -c docs -d $(VENV)/.doctrees . site
check: setup ## Lint, format, types, imports between packages, spelling
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy && $(BIN)/lint-imports && $(BIN)/codespell
format: setup ## Format, and mend what can be mended
	$(BIN)/ruff check --fix . && $(BIN)/ruff format .
LOCKING := uv pip compile pyproject.toml --universal --python-version 3.10 --generate-hashes --no-annotate --no-header --quiet
lock: setup ## Renew the locks from pyproject.toml; UPGRADE=--upgrade for newer versions
	$(BIN)/$(LOCKING) --all-extras $(UPGRADE) --output-file requirements.lock
	@grep == requirements.lock | sed 's/ \\$$//' | grep -vE '^(torch|torchvision|triton|cuda|nvidia)' >$(VENV)/others.txt
	@echo 'torch<2.11' >>$(VENV)/others.txt # the last with CUDA 12 on the ordinary index
	$(BIN)/$(LOCKING) --extra benchmark --extra dev --constraint $(VENV)/others.txt --output-file requirements-cuda12.lock
slurm-up: ## A real SLURM here (Debian, as root); prints what to source
	@setsid --wait slurm/single_node/up.sh </dev/null
slurm-down: ## Stop it
	@slurm/single_node/down.sh
clean: ## Remove the environment and caches; results stay
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache
