# Every target but test-gpu sets up what it needs: Python 3.11 or newer is all that must be there.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
INTEGRATIONS := .venv-integrations

.PHONY: test test-gpu test-integrations lint docs bench demo figures notebooks clean

test: lint
	$(BIN)/python -m pytest -n 2

# On a machine with a GPU, with the PyTorch that is there: PYTHON=python3 make test-gpu
test-gpu:
	PYTHONPATH=src $(PYTHON) -m pytest -p no:cacheprovider \
		tests/scan/test_fused.py tests/scan/test_matrix_units.py tests/training/test_fused_adam.py tests/gpu

# The callbacks and examples with the real packages, in an environment of its own: it is large.
test-integrations: $(INTEGRATIONS)/.installed
	$(INTEGRATIONS)/bin/python -m pytest tests/integrations

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

demo: $(INSTALLED)
	$(BIN)/multistable demo

bench: $(INSTALLED)
	$(BIN)/python benchmarks/dynamics.py

docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "site/index.html; for its search: $(BIN)/python -m http.server -d site"

figures: $(INSTALLED)
	$(BIN)/python docs/figures/warmup_of_a_gru.py
	$(BIN)/python docs/figures/warmup_failures.py
	$(BIN)/python docs/figures/demo.py

notebooks: $(INSTALLED)
	$(BIN)/python tests/helpers/notebooks.py

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

$(INTEGRATIONS)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(INTEGRATIONS)
	$(INTEGRATIONS)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[integrations]"
	touch $@

clean:
	rm -rf $(VENV) $(INTEGRATIONS) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist site
