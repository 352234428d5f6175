# Two commands do everything on a fresh machine; each makes .venv first if it is missing.
#   make check   rebuild every chapter from its diff, run its example and its tests
#   make test    the whole test suite
SHELL := /bin/bash
PYTHON ?= python3
PY := .venv/bin/python

# Several jobs share the cores: one thread each, or torch's own threads fight.
export OMP_NUM_THREADS ?= 1

.PHONY: help model check test lint gpu bench site serve clean
help:
	@sed -n '2,3s/^#   //p' Makefile
	@echo "make lint    style checks (ruff)"
	@echo "make site    the site, in site/; make serve: the same, at http://127.0.0.1:8000"
	@echo "make bench   the benchmarks, on this machine"
	@echo "make gpu     the device tests and figures, on a machine with CUDA (installs nothing)"

check: .venv/.stamp model
	$(PY) tools/steps.py check

test: .venv/.stamp model lint
	$(PY) tools/steps.py check
	$(PY) practice/judge.py verify
	$(PY) -m pytest --ignore-glob='tests/test_ch*'

lint: .venv/.stamp
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

bench: .venv/.stamp model
	$(PY) tools/bench.py decode

# The pages' directives are in tools/; the second variable silences an advertisement.
MKDOCS := PYTHONPATH=tools NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs

site: .venv/.stamp browser
	$(MKDOCS) build --quiet

serve: .venv/.stamp browser
	$(MKDOCS) serve

.PHONY: browser
browser: .venv/.stamp
	$(PY) tools/browser.py build

gpu:
	$(PYTHON) tools/gpu_run.py

clean:
	@test ! -e build/edit || { echo "an edit is open: tools/steps.py save or abort first"; exit 1; }
	rm -rf build

.venv/.stamp: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "minisgl needs Python 3.11 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(PY) || $(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --constraint constraints.txt --editable '.[dev,site]'
	@touch $@

model: .venv/.stamp
	$(PY) tools/models.py get smollm2
