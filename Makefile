# One verb a job; each is one or two commands. `make` alone lists them.

PYTHON ?= python3.11
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed

# The demo: make DEMO_IMAGES=folder trains on and searches your own class/image folder.
DEMO_IMAGES ?= data/emoji
DEMO_RECIPE ?= training/recipes/demo.toml
DEMO_PORT ?= 8000
DEMO := $(if $(filter data/emoji,$(DEMO_IMAGES)),demo,demo-$(notdir $(DEMO_IMAGES:/=)))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install format lint types test test-fast bench demo clean

help: ## list the verbs
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(INSTALLED) ## create the virtual environment and install everything

$(INSTALLED): setup.py
	$(PYTHON) -m venv $(VENV) && $(BIN)/pip install --quiet --editable '.[dev]'
	touch $@

format: $(INSTALLED) ## format the code
	$(BIN)/ruff check --fix-only --quiet . && $(BIN)/ruff format .

lint: $(INSTALLED) ## check style and format
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(INSTALLED) ## check types
	$(BIN)/mypy

test: lint types ## everything that must pass, the slow tests too
	$(BIN)/python -m pytest
	KERAS_BACKEND=jax $(BIN)/python -m pytest -m "backend and not slow"

test-fast: $(INSTALLED) ## the tests that take seconds
	$(BIN)/python -m pytest -m 'not slow'

bench: $(INSTALLED) ## the loss against the bare similarity matrix, same run
	$(BIN)/python -m benchmarks.topk_precision

demo: runs/$(DEMO)/metrics.json models/$(DEMO)/1 indexes/$(DEMO)/gallery.json ## train, export, index, and search images in the browser
	$(BIN)/python -m serving demo runs/$(DEMO) indexes/$(DEMO) --model models/$(DEMO) --port $(DEMO_PORT)

data/emoji/manifest.csv: | $(INSTALLED)
	$(BIN)/python -m training emoji data/emoji

runs/$(DEMO)/metrics.json: | $(INSTALLED) $(if $(filter demo,$(DEMO)),data/emoji/manifest.csv)
	$(BIN)/python -m training fit $(DEMO_RECIPE) --images $(DEMO_IMAGES) --run runs/$(DEMO)

models/$(DEMO)/1: | runs/$(DEMO)/metrics.json
	$(BIN)/python -m serving export runs/$(DEMO) $@

indexes/$(DEMO)/gallery.json: | models/$(DEMO)/1
	$(BIN)/python -m serving index $(DEMO_IMAGES) indexes/$(DEMO) --model models/$(DEMO) --only runs/$(DEMO)/test_images.txt

clean: ## delete what the demo made, the environment stays
	rm -rf data/emoji runs models indexes
