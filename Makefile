# Everything runs in .venv, which the first target that needs it makes from requirements.lock.

PYTHON ?= python3
BIN    := .venv/bin
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check
STAMP  := .venv/.installed

# pyright: no question to the network whether a newer one exists.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
EXAMPLES ?= 500

.PHONY: help install demo test evidence laws bench docs lock format clean

help:  ## list these targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

install: $(STAMP)  ## make .venv and install the locked requirements and this package into it

demo: $(STAMP)  ## a part of the paper's first table, and a video in which objects are tracked
	@$(BIN)/steelyard table1 --quick
	@$(BIN)/steelyard table2 show

test: $(STAMP)  ## lint, check the types, run the test suite
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not long"

evidence: $(STAMP)  ## run the long tests: training, and averages of many runs next to exact values
	$(BIN)/pytest -n 2 --dist load -m long

laws: $(STAMP)  ## run the laws on new random programs (make laws EXAMPLES=20000; SEED= and ONLY= repeat a failure)
	@$(BIN)/python -m tests.laws.run --examples $(EXAMPLES) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only $(ONLY))

bench: .venv/.installed-bench .venv-particles/.installed  ## run the benchmarks
	@$(BIN)/python -m benchmarks

# A tutorial runs if it, the library or the lock has changed since it last did; what came of it is kept in .cache.
docs: .venv/.installed-docs  ## build the documentation site, and run the tutorials that have changed
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
	@echo "The site: site/index.html"

format: $(STAMP)  ## apply what ruff can repair
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# --fork-strategy fewest: one version of each package, whatever the Python, so that one set is tested.
COMPILE = .venv-lock/bin/uv --no-config --quiet pip compile $(UPGRADE) --no-strip-extras --universal --python-version 3.11 \
	--fork-strategy fewest --generate-hashes --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"

lock: | check-python  ## bring the locks up to date with pyproject.toml (make lock UPGRADE=--upgrade: newest versions)
	@test -x .venv-lock/bin/uv || { rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock \
	  && .venv-lock/bin/python -m pip --quiet --disable-pip-version-check install uv; }
	@$(COMPILE) pyproject.toml --all-extras --output-file requirements.lock
	@$(COMPILE) --group docs --constraints requirements.lock --output-file website/requirements.lock

clean:  ## remove the environments and everything generated
	rm -rf .venv .venv-lock .venv-particles .cache site build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: check-python
check-python:
	@command -v $(PYTHON) >/dev/null || { echo "There is no '$(PYTHON)' here. Install Python 3.11 or newer," \
	  "or name one: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Steelyard needs Python 3.11 or newer;" \
	  "'$(PYTHON)' is $$($(PYTHON) -V 2>&1). Name another: make PYTHON=python3.12" >&2; exit 1; }

# The stamp is written last: an interrupted installation is taken up again by the next make.
$(STAMP): requirements.lock pyproject.toml | check-python
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { rm -rf .venv && $(PYTHON) -m venv .venv; } \
	  || { echo "'$(PYTHON) -m venv' failed. On Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@echo "Installing the locked requirements into .venv (once; a minute or two)"
	@rm -f $(STAMP)
	@$(PIP) install --require-hashes --no-deps -r requirements.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $(STAMP)

# What builds the site and the release, and no test needs.
.venv/.installed-docs: $(STAMP) website/requirements.lock
	@$(PIP) install --require-hashes --no-deps -r website/requirements.lock
	@touch $@

# What the benchmarks compare with. All that it depends on is in the lock.
.venv/.installed-bench: $(STAMP) benchmarks/requirements.txt
	@$(PIP) install --require-hashes --no-deps -r benchmarks/requirements.txt
	@touch $@

# A peer that needs an older NumPy. Where it cannot be installed, its row is left out.
.venv-particles/.installed: benchmarks/requirements-particles.txt | check-python
	@$(PYTHON) -m venv .venv-particles
	@.venv-particles/bin/python -m pip --quiet --disable-pip-version-check install -r $< \
	  || { echo "The package 'particles' cannot be installed here: its row is left out." >&2; rm -rf .venv-particles/bin; }
	@touch $@
