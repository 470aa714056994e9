# Two commands are all the set-up there is: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
RUN = $(VENV)/bin/python
STAMP = $(VENV)/.installed

.PHONY: demo test lint types bench clean

# torch is a reference for tests only: its CPU build is enough
$(STAMP): pyproject.toml plugins/tg_cpu/pyproject.toml plugins/tg_null/pyproject.toml plugins/tg_nv/pyproject.toml
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --upgrade pip
	$(RUN) -m pip install --quiet -e ".[examples]" -e plugins/tg_cpu -e plugins/tg_null -e plugins/tg_nv
	touch $@

$(VENV)/.installed-dev: $(STAMP)
	$(RUN) -m pip install --quiet "torch==2.13.0"
	$(RUN) -m pip install --quiet -e ".[dev]"
	touch $@

demo: $(STAMP)
	$(RUN) examples/digits.py

test: $(VENV)/.installed-dev
	$(RUN) -m pytest -n auto tests
	$(RUN) -m pytest --pyargs tgcore.testing --tg-device CPU
	$(RUN) -m pytest --pyargs tgcore.testing --tg-device NULL

lint: $(VENV)/.installed-dev
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/lint-imports

types: $(VENV)/.installed-dev
	$(RUN) -m mypy

bench: $(VENV)/.installed-dev
	$(RUN) -m benchmarks

clean:
	rm -rf $(VENV) dist build
