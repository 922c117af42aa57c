# Every target works on a fresh Debian machine with Python 3.11 and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK = 1
# The tests start hundreds of processes, each of which would translate every module again.
unexport PYTHONDONTWRITEBYTECODE
# One more than the cores they are meant for: the tests of services wait more than they compute.
WORKERS ?= 3

.PHONY: demo test test-full check docs format bench coverage mutants verify release release-trial clean

$(VENV)/demo.stamp: pyproject.toml
	@sh distribution/environment.sh $(PYTHON) $(VENV)
	$(BIN)/pip install --quiet -e '.[serve]'
	touch $@

$(VENV)/dev.stamp: pyproject.toml
	@sh distribution/environment.sh $(PYTHON) $(VENV)
	$(BIN)/pip install --quiet -e '.[dev]'
	touch $@ $(VENV)/demo.stamp

demo: $(VENV)/demo.stamp
	$(BIN)/dpsketch demo -o demo-output

test: $(VENV)/dev.stamp
	sh tests/install_components.sh
	$(BIN)/python -m pytest -p no:randomly -n $(WORKERS) --dist worksteal -m "not full"

test-full: $(VENV)/dev.stamp
	sh tests/install_components.sh
	DPSKETCH_FRESH_NOISE=1 $(BIN)/python -m pytest -p no:randomly -n $(WORKERS) --dist worksteal

check: $(VENV)/dev.stamp docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Strict: a broken link, a missing page or a name that cannot be resolved fails.
docs: $(VENV)/dev.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

format: $(VENV)/dev.stamp
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The peers have pins of their own, so each lives in an environment of its own.
.venv-peers/stamp:
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/pip install --quiet opendp pipeline-dp dp-accounting datasketches numpy pyarrow polars duckdb
	touch $@

# Its frames work with one version of polars only.
.venv-opendp/stamp:
	$(PYTHON) -m venv .venv-opendp
	.venv-opendp/bin/pip install --quiet 'opendp[polars]==0.16.*'
	touch $@

.venv-pureldp/stamp:
	$(PYTHON) -m venv .venv-pureldp
	.venv-pureldp/bin/pip install --quiet 'pure-ldp>=1.2' 'numpy<2.3' 'xxhash<4' scikit-learn statsmodels
	touch $@

.venv-diffprivlib/stamp:
	$(PYTHON) -m venv .venv-diffprivlib
	.venv-diffprivlib/bin/pip install --quiet 'diffprivlib>=0.6.6' 'scikit-learn==1.5.2'
	touch $@

# Runs on a Spark of its own, which needs Java.
.venv-tumult/stamp:
	$(PYTHON) -m venv .venv-tumult
	.venv-tumult/bin/pip install --quiet 'tmlt.analytics==0.21.*'
	touch $@

.venv-jaxprivacy/stamp:
	$(PYTHON) -m venv .venv-jaxprivacy
	.venv-jaxprivacy/bin/pip install --quiet 'jax-privacy>=2.0'
	touch $@

bench: $(VENV)/dev.stamp .venv-peers/stamp .venv-opendp/stamp .venv-pureldp/stamp .venv-diffprivlib/stamp .venv-tumult/stamp .venv-jaxprivacy/stamp
	$(BIN)/python -m benchmarks

# Writes its table into docs/explanation/coverage.md; fails if an interval covers less than it states.
coverage: $(VENV)/dev.stamp
	$(BIN)/python -m benchmarks.coverage

# Breaks the library on purpose, in copies; fails on a survivor.
mutants: $(VENV)/dev.stamp
	$(BIN)/python -m tests.mutants

# All long checks on one commit; restartable. Writes docs/explanation/verified.json, which a page shows.
verify: $(VENV)/dev.stamp
	sh tests/install_components.sh
	$(BIN)/python -m tests.verify

# Versions and changelog agree, archives build, the wheel works in an empty environment; all of it is left in dist/.
release: $(VENV)/dev.stamp
	$(BIN)/python -m distribution

# The same for a version that has no date yet.
release-trial: $(VENV)/dev.stamp
	$(BIN)/python -m distribution --trial

clean:
	rm -rf $(VENV) build dist site demo-output .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
