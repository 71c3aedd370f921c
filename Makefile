# Everything works through these targets; CI runs the same ones.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# 13, or 12 for NVIDIA drivers older than 580 and for V100; an environment remembers it.
ifneq ($(origin CUDA),command line)
CUDA := $(or $(shell cat $(VENV)/.cuda 2>/dev/null),13)
endif
LOCK := requirements$(if $(filter 12,$(CUDA)),-cuda12).lock
READY := $(VENV)/.ready$(if $(filter 12,$(CUDA)),-cuda12)
OTHER_LOCK = $(if $(filter 12,$(CUDA)),echo "that lock has the torch of CUDA 13: make setup CUDA=13"; exit 2,:)
FFCV := $(VENV)/.ffcv
DOCS := $(VENV)/.docs
LIBRARIES := $(VENV)/.libraries
TRANSFORMERS := $(VENV)/transformers4
PYARROW := $(VENV)/pyarrow
DATASETS := $(VENV)/datasets
FFCV_PACKAGES := g++ python3-dev pkg-config libopencv-dev libturbojpeg0-dev
FFCV_BUILDS := $(shell pkg-config --exists opencv4 libturbojpeg 2>/dev/null && command -v g++)

# Tests with a case for each device that is there.
ON_GPU = $(shell grep -lE '\bDEVICES\b' -r tests --include='test_*.py')

.DEFAULT_GOAL := help
.PHONY: help help-all setup bench-small bench-standard bench-catalogue bench-smoke bench-speed bench-fidelity bench-scale results test \
  test-long test-faults test-slow test-gpu test-skipped test-ffcv test-libraries test-hugging-face test-parquet test-datasets test-browser test-wheel test-examples test-latex \
  test-slurm slurm-up slurm-down docs check format lock clean

SHOWN := ^(setup|bench-small|test|docs|help-all):.*\#\# 
help-all: SHOWN := ^[a-z-]+:.*\#\# 
help: ## The targets of a first day
help-all: ## All targets
help help-all:
	@grep -hE '$(SHOWN)' $(MAKEFILE_LIST) | awk -F ':.*## ' '{name[NR] = $$1; text[NR] = $$2; \
	  if (length($$1) > width) width = length($$1)} \
	  END {for (i = 1; i <= NR; i++) printf "  make %-" width "s  %s\n", name[i], text[i]}'

$(if $(filter 12 13,$(CUDA)),,$(error CUDA=$(CUDA): there are locks for 12 and 13))

setup: $(READY) $(if $(and $(FFCV_BUILDS),$(filter 13,$(CUDA))),$(FFCV)) ## The environment in .venv, from the hash-pinned lock
	@$(if $(FFCV_BUILDS)$(filter-out setup,$(MAKECMDGOALS)),,echo "FFCV (optional, for data larger than memory) is left out; on Debian: apt-get install -y \
	  --no-install-recommends $(FFCV_PACKAGES), then make setup")

# Empty, or "moved" where the environment was made in another folder: its `activate` would lead there.
MOVED := $(shell test -f $(BIN)/activate && ! sed -n 's/^ *\(export \)\{0,1\}VIRTUAL_ENV=//p' $(BIN)/activate | tr -d "\"'" | \
  grep -qxF '$(abspath $(VENV))' && echo moved)
.PHONY: moved
moved:
	@echo "$(VENV) was made in another folder; it is made anew"; rm -rf $(VENV)

$(READY): $(LOCK) pyproject.toml $(MOVED)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "vitinit needs Python 3.10 or newer: make PYTHON=python3.11 ..."; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "Python cannot make environments here; on Debian: apt-get install python3-venv"; exit 2; }
	@printf 'setting up %s: about a minute, more where packages must be fetched ... ' $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install -qq --disable-pip-version-check uv
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --compile-bytecode --require-hashes -r $(LOCK)
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps -e .
	@$(BIN)/vitinit list grids >/dev/null # asks torch once and keeps the answers, so that the first plan comes at once
	@$(BIN)/vitinit list initializers >/dev/null # likewise
	@rm -f $(VENV)/.ready*; echo $(CUDA) >$(VENV)/.cuda; touch $@; echo done

# Nothing else needs it: where it cannot be built, all but the loader ffcv works.
$(FFCV): requirements-ffcv.lock $(READY)
	@$(OTHER_LOCK)
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --compile-bytecode --require-hashes -r requirements-ffcv.lock && touch $@ \
	  || echo "FFCV could not be installed (optional, for data larger than memory); it needs $(FFCV_PACKAGES)"

bench-small: setup ## The main job: train six initialisations, print a table
	@$(BIN)/vitinit run small --no-download --retry-failed --wait --brief; status=$$?; \
	  $(BIN)/python -m analysis.figures --study small --quiet && $(BIN)/python -m analysis.tables --study small && exit $$status

bench-standard: setup ## The standard protocol, a day; can be resumed
	$(BIN)/vitinit run standard-mechanism --no-download --retry-failed --wait
	$(BIN)/vitinit run standard-tuning --no-download --retry-failed --wait
	$(BIN)/vitinit run standard --seeds 0 --keep-maps --maps-at 20 --no-download --retry-failed --wait
	$(BIN)/vitinit run standard --no-download --retry-failed --wait

bench-catalogue: setup ## Bases, methods and placebos, hours; can be resumed
	$(BIN)/vitinit run catalogue-small-tuning --no-download --retry-failed --wait
	$(BIN)/vitinit run catalogue-small --no-download --retry-failed --wait

bench-smoke: setup ## The same path in seconds
	$(BIN)/vitinit run smoke --wait
	$(BIN)/python -m analysis.tables --study smoke
	$(BIN)/python -m analysis.figures --study smoke --quiet

results: setup ## Pages of the committed studies, from records
	$(BIN)/python -m analysis.pages --results results/reference

test: setup ## The tests, but for long ones, on every core
	$(BIN)/python -m pytest -n auto --dist worksteal

test-long: setup ## Whole runs, processes, submissions: minutes
	$(BIN)/python -m pytest -n auto --dist worksteal -m long --ignore tests/faults

test-faults: setup ## Kill, race, damage and starve runs, with a report
	FAULTS=all $(BIN)/python -m pytest -n auto tests/faults

test-ffcv: setup ## The loader that reads with FFCV, where it is installed
	VITINIT_TEST_FFCV=1 $(BIN)/python -m pytest tests/runners/loaders/test_ffcv_loader.py

test-skipped: setup ## What the last run skipped, but for faults
	$(BIN)/python -m pytest -n auto --dist worksteal --skipped --ignore tests/faults

test-libraries: $(LIBRARIES) ## Models of transformers; fetched
	VITINIT_TEST_LIBRARIES=1 $(BIN)/python -m pytest -n auto tests/initializers

$(LIBRARIES): requirements-libraries.lock $(READY)
	@$(OTHER_LOCK)
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --compile-bytecode --require-hashes -r requirements-libraries.lock
	@touch $@

test-hugging-face: $(TRANSFORMERS) ## The layout of transformers 4, which is fetched
	PYTHONPATH=$< $(BIN)/python -c 'import transformers as t; print("transformers", t.__version__); assert t.__version__ < "5"'
	PYTHONPATH=$< $(BIN)/python -m pytest tests/initializers/test_parity.py tests/initializers/test_matrix.py -k "Hugging or distilled"

$(TRANSFORMERS): $(READY)
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --target $@ 'transformers>=4.57,<5'

test-parquet: $(PYARROW) ## Export of records as parquet; pyarrow is fetched
	PYTHONPATH=$< $(BIN)/python -c 'import pyarrow; print("pyarrow", pyarrow.__version__)'
	PYTHONPATH=$< $(BIN)/python -m pytest tests/benchmark/test_store_commands.py -k parquet

test-datasets: $(DATASETS) ## Datasets of the library `datasets`, which is fetched
	PYTHONPATH=$< $(BIN)/python -c 'import datasets; print("datasets", datasets.__version__)'
	PYTHONPATH=$< $(BIN)/python -m pytest tests/benchmark/test_hugging_face_datasets.py

$(DATASETS): $(READY)
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --target $@ 'datasets>=3,<5'

$(PYARROW): $(READY)
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --target $@ pyarrow

test-browser: setup ## The report in a Chromium, which must be here
	VITINIT_TEST_BROWSER=1 $(BIN)/python -m pytest tests/analysis/test_report_browser.py

test-wheel: setup ## The wheel, installed without the rest
	VITINIT_TEST_WHEEL=1 $(BIN)/python -m pytest tests/test_wheel.py

test-examples: $(LIBRARIES) ## Commands and examples of the texts: they run and train
	VITINIT_TEST_EXAMPLES=1 $(BIN)/python -m pytest -n auto tests/test_readme.py tests/test_examples.py

test-latex: setup ## The tables, compiled by pdflatex, which must be here
	VITINIT_TEST_LATEX=1 $(BIN)/python -m pytest tests/analysis/test_formats.py -k latex_compiles

test-slurm: setup ## Submit to a real SLURM, here (Debian, as root)
	VITINIT_TEST_SLURM=1 $(BIN)/python -m pytest -n 2 --dist loadfile tests/slurm/real

test-gpu: setup ## What can run on a CUDA GPU, where there is one
	@$(BIN)/python -c 'import torch; torch.cuda.is_available() or exit("torch finds no CUDA GPU here: nothing is tried")' || exit 0; \
	  $(BIN)/vitinit self-test --device cuda && \
	  VITINIT_TEST_SLOW=1 $(BIN)/python -m pytest -ra -k "cuda or gpu or compile or memory" tests/slow $(ON_GPU)

test-slow: setup ## What takes minutes: torch.compile, bf16, memory
	VITINIT_TEST_SLOW=1 $(BIN)/python -m pytest tests/slow

slurm-up: ## SLURM here (Debian, as root); prints what to source
	@setsid --wait slurm/single_node/up.sh </dev/null

slurm-down: ## Stop it
	@slurm/single_node/down.sh

bench-speed: setup ## Speed of loaders, training, initialisers, checkpoints
	PYTHONPATH=. $(BIN)/python tests/scale/speed.py

bench-fidelity: setup ## How much attention impulse solvers put on their target
	PYTHONPATH=. $(BIN)/python tests/scale/fidelity.py

bench-scale: setup ## Planning and tables over 10,000 records: time, memory
	$(BIN)/python tests/scale/bench.py

docs: $(DOCS) ## Texts and docstrings as a site: site/index.html
	@rm -rf site
	$(BIN)/python -m sphinx -W --keep-going --quiet -c docs -d $(VENV)/.doctrees . site

$(DOCS): requirements-docs.lock $(READY)
	@$(OTHER_LOCK)
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "the generator of the pages needs Python 3.11 or newer"; exit 2; }
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements-docs.lock
	@touch $@

check: setup ## Lint, format, types, spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell

format: setup ## Format and mend what can be mended
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

COMPILE := uv pip compile pyproject.toml --extra benchmark --universal --python-version 3.10 --upgrade --generate-hashes --no-annotate \
  --no-header --quiet

lock: setup ## Renew the locks from pyproject.toml
	$(BIN)/$(COMPILE) --extra dev --output-file requirements.lock
	@grep '==' requirements.lock | sed 's/ \\$$//' | grep -vE '^(torch|torchvision|triton|cuda|nvidia)' >$(VENV)/others.txt
	@echo 'torch<2.11' >>$(VENV)/others.txt # the last with CUDA 12 on the ordinary index
	$(BIN)/$(COMPILE) --extra dev --constraint $(VENV)/others.txt --output-file requirements-cuda12.lock
	$(BIN)/$(COMPILE) --extra libraries --constraint requirements.lock --output-file requirements-libraries.lock
	$(BIN)/$(COMPILE) --extra ffcv --constraint requirements.lock --output-file requirements-ffcv.lock
	$(BIN)/$(COMPILE) --extra docs --constraint requirements.lock --output-file requirements-docs.lock

clean: ## Remove the environment and caches; results stay
	rm -rf $(VENV) site .mypy_cache .ruff_cache .pytest_cache
