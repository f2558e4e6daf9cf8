# Everything a newcomer needs: `make demo`, `make test`. Both set up .venv/ in this folder the first time.
SHELL := /bin/bash
VENV  := .venv
PY    := $(VENV)/bin/python
ROOTS := kernel overlay placement provisioning reach scaling shuffle dataflow recovery transport sink_log connectors executor node agent simulation spark api analytics examples experiments cli
# SPARK=no leaves Spark out (575 of 620 MB); what was said last holds until the other is said.
SPARK ?= $(if $(wildcard $(VENV)/.without-spark),no,yes)
STAMP := $(VENV)/.installed$(if $(filter no,$(SPARK)),,-with-spark)

# Agents of tests wait for each other more than they compute, so one worker more than cores shortens a run by a third.
WORKERS ?= $(shell cores=$$(nproc 2>/dev/null || echo 2); echo $$((cores < 8 ? cores + 1 : 8)))

.DEFAULT_GOAL := help
.PHONY: help install upgrade demo test test-fast soak lint types contracts format bench bench-spark bench-engines soak-day soak-path simulate packages chart docs clean bytecode

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## .venv/ with the project, its development tools and Spark (SPARK=no: without)

$(STAMP): pyproject.toml tools/setup.sh tools/constraints.txt
	@tools/setup.sh $(VENV) $(SPARK)
	@touch $(VENV)/.installed $@

upgrade: $(STAMP) ## the newest versions of all dependencies, written to tools/constraints.txt; then run make test
	@$(VENV)/bin/pip install --quiet --disable-pip-version-check --upgrade --upgrade-strategy eager --editable '.[dev,spark,pipeline,libp2p]'
	@$(VENV)/bin/pip freeze --exclude-editable >tools/constraints.txt && touch $(STAMP)

# Compiled once: where nobody may write bytecode (PYTHONDONTWRITEBYTECODE), each of hundreds of processes would compile everything anew.
bytecode: $(STAMP)
	@$(PY) -m compileall -q $(ROOTS) tools benchmarks tests

demo: bytecode ## five agents on this machine compute the busiest taxi routes, live; Spark reads along
	@$(VENV)/bin/agiledart demo $(if $(and $(filter no,$(SPARK)),$(wildcard $(VENV)/.installed-with-spark)),--no-spark) $(ARGS)

test: bytecode lint types contracts ## everything but soaks
	@$(PY) -m pytest -n $(WORKERS) --dist loadgroup -m "not soak" $(ARGS)

test-fast: bytecode lint types contracts ## what every commit must pass
	@$(PY) -m pytest -n $(WORKERS) --dist loadgroup -m "not slow and not soak" $(ARGS)

soak: bytecode ## tests that take minutes each: hostile crowds, storms and planted bugs in the simulator
	@AGILEDART_KAFKA_FETCH=1 $(PY) -m pytest -n 2 --dist loadgroup -m soak --timeout 1800 $(ARGS)

lint: $(STAMP) ## ruff: style and banned names
	@$(VENV)/bin/ruff check --quiet . && $(VENV)/bin/ruff format --check --quiet . || { echo "run: make format"; exit 1; }

types: $(STAMP) ## mypy, strict
	@$(VENV)/bin/mypy --no-error-summary $(ROOTS) tools benchmarks tests

contracts: $(STAMP) ## who may import whom
	@$(VENV)/bin/lint-imports --no-cache >/tmp/agiledart-contracts.$$$$ 2>&1 || { cat /tmp/agiledart-contracts.$$$$; rm -f /tmp/agiledart-contracts.$$$$; exit 1; }; rm -f /tmp/agiledart-contracts.$$$$

format: $(STAMP) ## let ruff put things in order
	@$(VENV)/bin/ruff check --fix . ; $(VENV)/bin/ruff format .

bench: $(STAMP) ## memory, start-up and rates of this machine
	@$(PY) -m benchmarks.run $(ARGS)

bench-engines: $(STAMP) ## our engine beside plain loops, Bytewax, Flink SQL, Zenoh and dora-rs; installs them (600 MB)
	@$(PY) -m benchmarks.engines $(ARGS)

simulate: $(STAMP) ## hostile runs of virtual rings for MINUTES (10); KEEP=DIR keeps the figures
	@tools/simulate.sh $(VENV)/bin/agiledart $(or $(MINUTES),10) $(or $(SEED),1) $(KEEP)

bench-spark: $(STAMP) ## what reading a log with Spark costs, beside Parquet (needs Spark)
	@$(PY) -m benchmarks.spark_read $(ARGS)

soak-day: $(STAMP) ## 24 hours of trips of two cities through a pipeline project, with damaged rows and an outage (needs Spark)
	@$(PY) -m benchmarks.day_of_pipeline $(ARGS)

soak-path: $(STAMP) ## the taxi job for an hour: does memory grow?
	@$(PY) -m benchmarks.soak_path $(ARGS)

docs: $(STAMP) ## the documentation as a site, in site/ (installs mkdocs-material)
	@$(VENV)/bin/pip install -q --disable-pip-version-check 'mkdocs-material>=9.6,<10'
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet && echo site/index.html

packages: $(STAMP) ## wheel and sdist (built twice), bill of materials and the Debian package of this distribution, in dist/
	@$(PY) -m tools.packages dist && deploy/deb/build.sh dist && $(PY) -m tools.wheels && ls dist

chart: ## the Helm chart and the plain manifest of Kubernetes, checked (needs go, helm and kubeconform)
	@deploy/helm/check.sh

clean: ## remove what was built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
