# make demo  sets up, lints, builds and smoke-runs an example
# make test  static checks, all tests that need no training library, proofs and launches whose inputs changed, and one
#            real ZeRO-3 job (minutes; writes what it saw into tests/ledger.jsonl, which is committed)
# make test-all  every test: all proofs and launches are run, and must be what tests/ledger.jsonl says
# make ledger  whether tests/ledger.jsonl is up to date with the files that it speaks of
# make test-rest  what make test left out, with the same ledger: CI runs both
# make rule CODE=ZC103  examples, page and proofs of one rule, played on the real libraries
# make parity  thousands of generated configs against the real libraries, and other random values (nightly)
# make fuzz  hostile inputs against zerocfg: readers, lints, fixes, kills, a full disk, the language server; N=20 of each,
#            FUZZ=--nightly takes the sizes of the night
# make lock  writes the locks anew after a change of pyproject.toml or constraints.txt; UPGRADE=-U takes the newest of everything
# make pythons  the tests that need no training library on every Python from 3.10 to 3.13 that is at hand
# make facts  walks every release of tools/facts/releases.yaml that was not walked yet, writes schemas/releases; FACTS=deepspeed
# make releases  corpus, recipes and generated configs at older releases, zerocfg against those releases themselves
# make new-rule CODE=ZC250 NAME=steps-never-end MODULE=batch/accumulation SEVERITY=error  a rule to fill in;
#            CODE=ZC250 UNDO=1 takes it away again
# make follow-release PACKAGE=deepspeed VERSION=0.19.9  moves to that release, compares, and says what to edit
# make slurm-demo  two Slurm nodes on this machine (apt-get install slurm-wlm), a ZeRO-3 smoke-run over both, its verdict
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
NODE := tests/node/node_modules/.package-lock.json
# What a target starts is what the locks name, node and npm too.
export PATH := $(abspath $(BIN)):$(PATH)
# Compiled once, at the installation, and not in each of the many processes that tests start.
export UV_COMPILE_BYTECODE := 1
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup lock dist pythons new-rule follow-release facts releases demo ledger test test-all test-rest rule proof parity fuzz mutants check gpu schemas docs examples slurm-demo clean

setup: $(STAMP) $(NODE)

# pip is at hand everywhere and installs uv, by its hash; uv installs the rest, in a tenth of pip's time.
$(BIN)/uv: | requirements-dev.lock
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	awk '/^[a-z]/ {own = /^uv==/} own' requirements-dev.lock > $(VENV)/uv.lock
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --require-hashes -r $(VENV)/uv.lock

# torch first, alone and by pip: its build differs by machine (processor, CUDA, ROCm), so that it alone has no hash in the lock.
INSTALL := $(BIN)/uv pip install -q --python $(BIN)/python --no-deps
$(STAMP): pyproject.toml constraints.txt requirements-dev.lock | $(BIN)/uv
	@test ! -L $(VENV) || { echo "$(VENV) is a link to the environment of another checkout, which this would change:\
	  remove the link, then make setup"; exit 1; }
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
	  "Python 3.11 or later is needed, transformers asks for it: make clean, then make setup PYTHON=python3.12")'
	$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps -c constraints.txt torch
	$(INSTALL) --require-hashes --build-constraint requirements-dev.lock -r requirements-dev.lock
	$(INSTALL) --no-build-isolation -e .
	$(BIN)/uv pip check -q --python $(BIN)/python
	touch $@

$(NODE): tests/node/package-lock.json | $(STAMP)
	npm ci --prefix tests/node --fetch-retries 5 --fetch-timeout 60000
	touch $@

COMPILE := $(BIN)/uv pip compile pyproject.toml --quiet --universal --generate-hashes --python $(BIN)/python \
  --no-emit-package torch --custom-compile-command "make lock" -c constraints.txt
UPGRADE ?=
lock: | $(BIN)/uv
	$(COMPILE) $(UPGRADE) --extra test --python-version 3.10 -o requirements-test.lock
	$(COMPILE) $(UPGRADE) --extra dev --python-version 3.11 -c requirements-test.lock -o requirements-dev.lock

# PYTHONS="3.12 3.13" takes these alone
PYTHONS ?=
pythons: $(BIN)/uv
	$(BIN)/python -m tools.pythons $(PYTHONS)

# Said before anything is installed.
ifneq (,$(filter new-rule,$(MAKECMDGOALS)))
ifeq (,$(and $(CODE),$(or $(UNDO),$(and $(NAME),$(MODULE)))))
$(error say what the rule is: make new-rule CODE=ZC250 NAME=steps-never-end MODULE=batch/accumulation SEVERITY=error)
endif
endif
new-rule: setup
	@$(BIN)/python -m tools.new_rule $(CODE) $(if $(UNDO),--undo,$(NAME) --module $(MODULE) --severity $(or $(SEVERITY),error))

follow-release: setup
	@$(BIN)/python -m tools.follow_release $(PACKAGE) $(VERSION)

dist: $(BIN)/uv
	rm -rf dist
	$(BIN)/uv build -q --build-constraint requirements-test.lock --out-dir dist

demo: setup
	bash examples/demo.sh

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# What DeepSpeed compiles on a processor, once for all tests of this checkout. It cannot be shared between checkouts:
# the commands that ninja compares name the environment's folder.
OPERATORS := .cache/torch_extensions/fused_adam/fused_adam.so
$(OPERATORS): | $(STAMP)
	@echo "compiling what DeepSpeed needs on a processor: minutes, once for this checkout"
	@$(BIN)/python -m tests.operators

# Whether the committed ledger speaks of the files that are here; seconds, and no test is run.
ledger: setup
	$(BIN)/python -m tests.ledger

test: check $(OPERATORS)
	$(BIN)/pytest --tier quick -n 2 --dist loadgroup

test-all: check $(OPERATORS)
	$(BIN)/pytest --tier all -n 3 --dist loadgroup

test-rest: $(OPERATORS)
	$(BIN)/pytest --tier rest -n 3 --dist loadgroup

CODE ?= $(error name a rule: make rule CODE=ZC103)
# What needs no library first. The operators are compiled for a proof that is played, which a page without a phase has not.
rule: setup
	$(BIN)/pytest tests/rules/test_examples.py tests/rules/test_pages.py tests/rules/test_claims_are_strong.py tests/rules/near -k $(CODE)
	$(BIN)/python -m tools.proof_counts
	@if grep -q '^phase:' docs/rules/$(CODE).md; then $(MAKE) --no-print-directory proof CODE=$(CODE); fi

proof: $(OPERATORS)
	$(BIN)/pytest tests/proofs/test_proofs.py -k $(CODE)

FACTS ?=
facts: setup
	$(BIN)/python -m tools.facts $(FACTS)
	$(BIN)/python -m tools.facts.signatures $(FACTS)
	$(BIN)/python -m tools.facts.lost_names

releases: setup
	$(BIN)/python -m tests.parity.releases

PARITY ?= 5000
SEARCHES ?= 500
parity: setup
	ZEROCFG_PARITY=$(PARITY) ZEROCFG_PARITY_SEED=$$(date +%Y%m%d) $(BIN)/pytest -n 2 tests/parity tests/build/test_autos.py
	ZEROCFG_SEARCHES=$(SEARCHES) ZEROCFG_PARITY_SEED=$$(date +%Y%m%d) $(BIN)/pytest -n 2 tests/build/test_brute_force.py
	ZEROCFG_RANDOM=1 $(BIN)/pytest -n 2 tests/source tests/catalog tests/run tests/rules

# FUZZ="lint fixes --nightly" is handed on; at low priority, as it takes minutes or the night
N ?=
FUZZ ?=
fuzz: setup
	nice -n 15 $(BIN)/python -m tests.fuzz $(if $(N),--n $(N)) $(FUZZ)

# MUTANTS="--package rules --sample 300" is handed on
MUTANTS ?=
mutants: setup
	$(BIN)/python -m tests.mutants $(MUTANTS)

schemas: setup
	$(BIN)/python -m zerocfg schema --write schemas

docs: setup
	$(BIN)/mkdocs build --strict

# Builds every example again; a change of any built value shows in review. In a copy, because here the requirements of
# zerocfg itself would be taken for theirs
examples: setup
	copy=$$(mktemp -d) && trap "rm -rf $$copy" EXIT && cp -R examples $$copy && \
	for spec in $$(ls examples/*/zerocfg.yaml | grep -v pitfalls); do folder=$$(dirname $$spec); \
	  (cd $$copy && $(abspath $(BIN))/zerocfg build $$folder -o $$folder/built >/dev/null) && \
	  cp -R $$copy/$$folder/built $$folder || exit 1; done

slurm-demo: setup $(OPERATORS)
	$(BIN)/zerocfg build examples/two-nodes-cpu -o out/slurm-demo
	$(BIN)/python -m tools.slurm_nodes $(abspath $(BIN))/zerocfg smoke out/slurm-demo/nodes --on slurm --device cpu

# CHECK=memory runs that one alone
CHECK ?=
gpu: setup
	$(BIN)/python benchmarks/gpu/run.py $(CHECK)

clean:
	rm -rf $(VENV) .cache out tests/node/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis
