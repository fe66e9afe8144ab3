# Every target but test-gpu sets up what it needs: Python 3.11 or newer is all that must be there.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
INTEGRATIONS := .venv-integrations
LOWEST := .venv-lowest
# The torch of test-lowest: the lowest one cannot be had everywhere.
TORCH ?= $(shell sed -n 's/^torch==//p' constraints.txt)

.PHONY: test test-gpu test-integrations test-lowest fuzz lint docs bench demo figures notebooks clean

test: lint
	$(BIN)/python -m pytest -n 2

# On a machine with a GPU, with the PyTorch that is there: PYTHON=python3 make test-gpu
test-gpu:
	PYTHONPATH=src $(PYTHON) -m pytest -p no:cacheprovider \
		tests/scan/test_fused.py tests/scan/test_matrix_units.py tests/training/test_fused_adam.py tests/gpu

# The callbacks and examples with the real packages, in an environment of its own: it is large.
test-integrations: $(INTEGRATIONS)/.installed
	$(INTEGRATIONS)/bin/python -m pytest tests/integrations

# With the lowest versions that pyproject.toml declares, but of torch: TORCH=2.11.0 make test-lowest. Old packages have
# wheels for old Pythons alone: Python 3.11 or 3.12. What they warn of is not ours.
test-lowest: $(LOWEST)/.installed
	$(LOWEST)/bin/python -m pytest -n 2 -p no:cacheprovider -W ignore::DeprecationWarning -W ignore::ResourceWarning \
		-W ignore::pytest.PytestUnraisableExceptionWarning --deselect tests/cli/test_reproduce_all.py \
		tests/house tests/cells tests/networks tests/tasks tests/cli tests/training/test_training_store.py \
		tests/training/test_interruptions.py tests/experiments/test_search.py tests/experiments/test_figures.py \
		tests/experiments/test_ray.py tests/rl/test_gym_agent.py tests/scan/test_cpu_scan.py \
		tests/scan/test_stored_code.py tests/scan/test_engine.py

fuzz: $(INSTALLED)
	$(BIN)/python tests/helpers/fuzzing.py

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

$(LOWEST)/.installed: pyproject.toml constraints.txt tests/helpers/lowest_versions.py
	$(PYTHON) -m venv $(LOWEST)
	$(PYTHON) tests/helpers/lowest_versions.py torch==$(TORCH) > $(LOWEST)/constraints.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -c $(LOWEST)/constraints.txt \
		-e ".[cpu,optuna,ray,report,rl,tensorboard]" hypothesis pytest pytest-xdist pyyaml
	touch $@

clean:
	rm -rf $(VENV) $(LOWEST) $(INTEGRATIONS) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist site
