.PHONY: help run test bench corpus
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

help: ## this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /make \1\t/' | expand -t 14

run: $(VENV)/.installed ## install what is needed and open the dashboard on localhost
	$(BIN)/streamlit run dashboard/app.py

test: $(VENV)/.installed-tests ## lint, types, unit, page and browser tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/python -m pytest -n 2 --dist loadgroup

bench: $(VENV)/.installed-tests ## speed and memory, beside transformers and WeightWatcher
	$(BIN)/pip install --quiet --requirement tests/bench/requirements.txt
	$(BIN)/python -m tests.bench

corpus: $(VENV)/.installed ## fetch the text to train small models on (ROMAJI=FILE: romanised Japanese too)
	$(BIN)/python -m models.training.corpus --out corpus $(if $(ROMAJI),--romaji "$(ROMAJI)")

$(VENV)/.installed: requirements.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --requirement requirements.txt
	touch $@

$(VENV)/.installed-tests: $(VENV)/.installed tests/requirements.txt
	$(BIN)/pip install --quiet --requirement tests/requirements.txt
	touch $@
