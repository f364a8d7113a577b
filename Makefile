# Everything from a bare clone: `make demo` and `make test` create .venv and install pinned versions.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
INSTALL := $(PIP) install --constraint constraints.txt
export OMP_NUM_THREADS := 1

.DEFAULT_GOAL := help
.PHONY: help demo test lint front results docs release-check clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: .venv/demo.done  ## train on scikit-learn's digits from six initial rates, fixed against adapted
	$(BIN)/probstep run demo --jobs 2
	$(BIN)/probstep report runs/demo

test: .venv/test.done lint  ## check style, types and layers, then run all tests
	$(BIN)/python -m pytest --numprocesses 2

lint: .venv/test.done  ## check style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

front: .venv/test.done  ## measure the first page's picture and table again, some minutes of one core
	rm -rf runs/front
	$(BIN)/probstep run front --jobs 2 --out runs/front
	$(BIN)/probstep collect runs/front --to benchmarks/records/front.jsonl
	$(BIN)/probstep page front

results: .venv/demo.done  ## make the pages of measurements again, from benchmarks/records
	$(BIN)/probstep page reproduction
	$(BIN)/probstep page robust
	$(BIN)/probstep page why
	$(BIN)/probstep page hazards
	$(BIN)/probstep page limits
	$(BIN)/probstep page front
	$(BIN)/probstep page averages
	$(BIN)/probstep page suggest
	$(BIN)/probstep page gauge
	$(BIN)/probstep page several

docs: .venv/docs.done  ## build the documentation into site/
	$(BIN)/mkdocs build --strict

release-check: .venv/bin/python  ## build wheel and sdist, try both with the oldest and the newest torch
	$(BIN)/python .ci/release_check.py

clean:  ## remove the environment and everything that was built
	rm -rf .venv site runs build dist

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "probstep needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv .venv
	$(PIP) install --upgrade 'pip>=25.1'

.venv/demo.done: .venv/bin/python pyproject.toml constraints.txt
	$(INSTALL) --editable '.[bench]'
	touch $@

.venv/test.done: .venv/bin/python pyproject.toml constraints.txt
	$(INSTALL) --editable '.[bench,parquet,ray,lightning,transformers,accelerate,tensorboard,peers]' --group dev
	touch $@

.venv/docs.done: .venv/bin/python pyproject.toml constraints.txt
	$(INSTALL) --editable '.[bench,docs]'
	touch $@
