# One verb a job; each is one or two commands. `make` alone lists them.

# The newest Python that is supported here and can make an environment. Each is run:
# pyenv has commands for versions that are not chosen, and they fail.
CAN_INSTALL := import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 14))
PYTHONS := python3.13 python3.12 python3.11 python3
ifndef PYTHON
PYTHON := $(shell for python in $(PYTHONS); do $$python -c '$(CAN_INSTALL)' 2>/dev/null && echo $$python && break; done)
endif
# What the peers' pinned versions were made for.
PEERS_PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
# The demo installs a third of it; whoever installs everything has that, too.
INSTALLED_DEMO := $(VENV)/installed-demo

# The demo: make demo DEMO_IMAGES=folder trains on and searches your own class/image
# folder, MINUTES=15 trains longer, from 10 on a larger network. Another folder, recipe or
# time gets a run, a model and an index of its own.
DEMO_IMAGES ?= data/emoji
USUAL_RECIPE := training/recipes/demo$(shell awk 'BEGIN { if ("$(MINUTES)" + 0 >= 10) print "_long" }').toml
DEMO_RECIPE ?= $(USUAL_RECIPE)
DEMO_PORT ?= 8000
DEMO_ENDPOINT_PORT ?= 8501
# Its extra has no other backend.
DEMO_PYTHON := KERAS_BACKEND=$(or $(KERAS_BACKEND),tensorflow) $(BIN)/python
ifneq ($(words $(DEMO_IMAGES)),1)
$(error DEMO_IMAGES must be one path without spaces. Received: '$(DEMO_IMAGES)')
endif
ifneq ($(MINUTES),$(firstword $(MINUTES)))
$(error MINUTES must be one number. Received: '$(MINUTES)')
endif
IMAGES := $(patsubst ./%,%,$(DEMO_IMAGES:%/=%))
DEMO_CHOICE := $(realpath $(IMAGES)) $(DEMO_RECIPE)
DEMO := $(if $(filter-out data/emoji $(USUAL_RECIPE),$(IMAGES) $(DEMO_RECIPE)),demo-$(notdir $(IMAGES))-$(shell echo '$(DEMO_CHOICE)' | cksum | cut -d ' ' -f 1),demo)$(if $(MINUTES),-$(MINUTES)-minutes)

# So many processes test side by side, a file of tests each.
TEST_PROCESSES ?= 2
PYTEST := python -m pytest --numprocesses $(TEST_PROCESSES) --dist loadfile --durations 20 --durations-min 5

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install format lint types test test-all test-fast test-torch test-conformance bench bench-peers figures notebooks api references docs demo clean

help: ## list the verbs
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(INSTALLED) ## create the virtual environment and install everything

define NO_PYTHON
error: make needs Python 3.11, 3.12 or 3.13, with venv and ensurepip. Tried: $(or $(PYTHON),$(PYTHONS)).
Debian and Ubuntu: apt-get install python3 python3-venv
macOS: brew install python@3.13. Anywhere: uv python install 3.13
Elsewhere than in the PATH: make PYTHON=/path/to/python, such as PYTHON="$$(uv python find 3.13)"
endef
export NO_PYTHON
define HALF_INSTALLED
error: the packages could not be installed; pip has said why above. Without a network, with a slow one or a full disk: see docs/install.md. Then run make again: it installs what is missing.
endef
export HALF_INSTALLED
NOT_INSTALLED = { printf '\n%s\n' "$$HALF_INSTALLED" >&2; exit 1; }
CHECK_PYTHON = '$(or $(PYTHON),false)' -c '$(CAN_INSTALL)' 2>/dev/null || { printf '%s\n' "$$NO_PYTHON" >&2; exit 1; }

$(INSTALLED): setup.py
	@$(CHECK_PYTHON)
	$(PYTHON) -m venv $(VENV) && $(BIN)/pip install --quiet --editable '.[dev]' || $(NOT_INSTALLED)
	touch $@ $(INSTALLED_DEMO)

$(INSTALLED_DEMO): setup.py
	@$(CHECK_PYTHON)
	$(PYTHON) -m venv $(VENV) && $(BIN)/pip install --quiet --editable '.[demo]' || $(NOT_INSTALLED)
	touch $@

format: $(INSTALLED) ## format the code
	$(BIN)/ruff check --fix-only --quiet . && $(BIN)/ruff format .

lint: $(INSTALLED) ## check style and format
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(INSTALLED) ## check types
	$(BIN)/mypy

# What runs on every backend, and the cache of what JAX has compiled, which processes share.
ON_BACKENDS := tests/tfdml tests/training tests/benchmarks tests/test_saved_before.py
ON_JAX := KERAS_BACKEND=jax JAX_COMPILATION_CACHE_DIR=$(CURDIR)/build/jax JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES=-1

# What XLA has compiled stays in memory until a process ends: the tests that compile the
# most have processes of their own.
test: lint types ## everything that must pass
	$(BIN)/$(PYTEST) -m 'backend and not full'
	$(BIN)/$(PYTEST) -m 'not backend and not full'
	$(ON_JAX) $(BIN)/$(PYTEST) -m 'backend and not full and (jax or not slow)' $(ON_BACKENDS)

test-all: test ## what is rare and long, too: every loss in every mode on both backends, soaks, kills
	$(BIN)/$(PYTEST) -m 'backend and full'
	$(BIN)/$(PYTEST) -m 'not backend and full'
	$(ON_JAX) $(BIN)/$(PYTEST) -m 'backend and (full or slow and not jax)' $(ON_BACKENDS)

test-torch: .venv-torch/installed ## the losses and layers on torch, in an environment of their own
	KERAS_BACKEND=torch .venv-torch/bin/$(PYTEST) -m backend tests/tfdml

.venv-torch/installed: setup.py
	@$(CHECK_PYTHON)
	$(PYTHON) -m venv .venv-torch && .venv-torch/bin/pip install --quiet --editable '.[torch,test]' 'torch==2.13.0' || $(NOT_INSTALLED)
	touch $@

test-fast: $(INSTALLED) ## the tests that take seconds
	$(BIN)/$(PYTEST) -m 'not slow and not full'

# GRPC_TARGET is port 8500 of the same host, MODEL is demo and LABEL is none unless given.
test-conformance: $(INSTALLED) ## check TF Serving's calls at TARGET=host:port, else at our endpoint
	CONFORMANCE_TARGET='$(TARGET)' CONFORMANCE_GRPC_TARGET='$(GRPC_TARGET)' CONFORMANCE_MODEL='$(MODEL)' CONFORMANCE_LABEL='$(LABEL)' $(BIN)/python -m pytest tests/conformance

bench: $(INSTALLED) bench-peers ## time and memory of every loss, and of its peers
	mkdir -p build
	$(BIN)/python -m benchmarks.losses --out build/losses.jsonl
	$(BIN)/python -m benchmarks.memory --out build/memory.jsonl
	$(BIN)/python -m benchmarks.report build/losses.jsonl build/memory.jsonl

bench-peers: .peers/pml/installed .peers/tfa/installed .peers/search/installed .peers/grain/installed ## environments of the peers

.peers/%/installed: benchmarks/peer_%.txt
	$(PEERS_PYTHON) -m venv .peers/$* && .peers/$*/bin/pip install --quiet --requirement $<
	touch $@

api: $(INSTALLED) ## write the API reference
	$(BIN)/python docs/make_api.py

references: $(INSTALLED) ## write the list of papers
	$(BIN)/python docs/make_references.py

docs: .venv-docs/installed ## build the documentation site into build/docs
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet

.venv-docs/installed: setup.py
	@$(CHECK_PYTHON)
	$(PYTHON) -m venv .venv-docs && .venv-docs/bin/pip install --quiet --editable '.[docs]' || $(NOT_INSTALLED)
	touch $@

notebooks: $(INSTALLED) ## run the notebooks of the documentation and store what they put out
	$(BIN)/python docs/run_notebooks.py

figures: $(INSTALLED) ## draw the figures of the documentation
	$(BIN)/python docs/figures.py
	$(BIN)/python -m benchmarks.papers figures $(addprefix docs/records/results/,emoji.jsonl furniture.jsonl pose.jsonl) --folder docs/records/results
	$(BIN)/python -m benchmarks.papers figures $(addprefix docs/records/results/,losses.jsonl) --folder docs/records/results
	$(BIN)/python -m benchmarks.papers figures $(addprefix docs/records/results/,headline.jsonl) --folder docs/records/results
	$(BIN)/python -m benchmarks.papers figures $(addprefix docs/records/results/,recent.jsonl) --folder docs/records/results

demo: runs/$(DEMO)/metrics.json models/$(DEMO)/1 indexes/$(DEMO)/manifest.json ## train, export, index, and search images in the browser
	$(BIN)/python -m serving demo runs/$(DEMO) indexes/$(DEMO) --model models/$(DEMO) --port $(DEMO_PORT) --endpoint-port $(DEMO_ENDPOINT_PORT)

data/emoji/manifest.csv: | $(INSTALLED_DEMO)
	$(BIN)/python -m training emoji data/emoji

runs/$(DEMO)/metrics.json: | $(INSTALLED_DEMO) $(if $(filter data/emoji,$(IMAGES)),data/emoji/manifest.csv)
	$(DEMO_PYTHON) -m training fit $(DEMO_RECIPE) --images $(IMAGES) --run runs/$(DEMO) $(if $(MINUTES),--minutes $(MINUTES))

# A threshold that is there stays, as one chosen by hand. Few or hard images may reach no
# such precision; then there is none.
models/$(DEMO)/1: runs/$(DEMO)/metrics.json $(wildcard runs/$(DEMO)/calibration.json)
	test -f runs/$(DEMO)/calibration.json || $(DEMO_PYTHON) -m training calibrate runs/$(DEMO) --precision 0.8 --training-images --if-possible
	@test -f runs/$(DEMO)/calibration.json || echo 'Going on without a threshold: the search answers every query.'
	rm -rf models/$(DEMO)
	KERAS_BACKEND=tensorflow $(BIN)/python -m serving export runs/$(DEMO) $@

# An index of an earlier version has a gallery.json, and is built anew.
indexes/$(DEMO)/manifest.json: models/$(DEMO)/1
	test ! -f indexes/$(DEMO)/gallery.json || rm -rf indexes/$(DEMO)
	$(BIN)/python -m serving index build $(IMAGES) indexes/$(DEMO) --model models/$(DEMO) --only runs/$(DEMO)/test_images.txt

clean: ## delete what the demo made; the environment and other runs stay
	rm -rf data/emoji runs/demo* models/demo* indexes/demo*
