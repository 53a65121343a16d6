# make demo  sets up, lints, builds and smoke-runs an example
# make test  static checks and every test (unit, property, snapshot, completeness, parity, proofs, end to end)
# make parity  thousands of generated configs against the real libraries, and other random values (nightly)
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo test parity check gpu schemas docs examples clean

setup: $(STAMP)

# torch first and alone: the pinned release is taken as it is, nothing later may replace it.
$(STAMP): pyproject.toml constraints.txt tests/node/package-lock.json
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	PATH="$$PATH:$(CURDIR)/$(BIN)" npm ci --prefix tests/node --fetch-retries 2 --fetch-timeout 60000 || \
	  echo "npm packages are missing: tests in editors' language servers and in a browser will be skipped" >&2
	touch $@

demo: setup
	PATH="$(CURDIR)/$(BIN):$$PATH" bash examples/demo.sh

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# What DeepSpeed compiles on a processor. Where it cannot, the tests that need it say so.
OPERATORS := .cache/torch_extensions/fused_adam/fused_adam.so
$(OPERATORS): | $(STAMP)
	-$(BIN)/python -m tests.operators > /dev/null

test: check $(OPERATORS)
	$(BIN)/pytest -n 3 --dist worksteal

PARITY ?= 5000
parity: setup
	ZEROCFG_PARITY=$(PARITY) ZEROCFG_PARITY_SEED=$$(date +%Y%m%d) $(BIN)/pytest -n 2 tests/parity tests/build/test_autos.py
	ZEROCFG_RANDOM=1 $(BIN)/pytest -n 2 tests/source tests/catalog tests/run tests/rules

schemas: setup
	$(BIN)/python -m zerocfg schema --write schemas

docs: setup
	$(BIN)/python -m zerocfg rules --write docs/rules
	$(BIN)/mkdocs build --strict

# Builds every example again; a change of any built value shows in review
examples: setup
	for spec in $$(ls examples/*/zerocfg.yaml | grep -v pitfalls); do \
	  folder=$$(dirname $$spec); $(BIN)/zerocfg build $$folder -o $$folder/built >/dev/null || exit 1; done

# CHECK=memory runs that one alone
CHECK ?=
gpu: setup
	$(BIN)/python benchmarks/gpu/run.py $(CHECK)

clean:
	rm -rf $(VENV) out .pytest_cache .mypy_cache .ruff_cache .hypothesis
