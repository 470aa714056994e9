# Two commands are all the set-up there is: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
RUN = $(VENV)/bin/python
STAMP = $(VENV)/.installed

.PHONY: demo test test-nv lint types bench clean

# tests of tensors that hold on any device
CORE_TESTS = $(wildcard tests/tensor/test_ops_*.py) \
  $(patsubst %,tests/tensor/test_%.py,assign dtypes jit symbolic)

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

# no GPU is needed: a fake driver has fake ones
NV_TESTS = env DEV=NV $(RUN) -m pytest -n auto -p tests.emulators.nv.suite

test-nv: $(VENV)/.installed-dev
	NV_FAKE=GH100,GA102 $(NV_TESTS) $(CORE_TESTS)
	for chip in GA100 GA102 AD102 GB100 GB202; do \
	  NV_FAKE=$$chip $(NV_TESTS) tests/tensor/test_ops_reduce.py tests/tensor/test_assign.py || exit; \
	done

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
