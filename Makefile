# Penstock: `make help` lists the targets. Needs python3 (3.11 or newer, with venv), make and git.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMPS := $(VENV)/.stamps
WORKERS ?= 4
CONFORMANCE_WORKERS ?= 6
SHELL  := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Every service and worker of a test would compile all of its modules again at its start.
unexport PYTHONDONTWRITEBYTECODE

KERNEL_SOURCES := $(wildcard storage/kernels/*.py storage/kernels/*/*.py storage/format/*.py storage/format/*/*.py services/varint_kernels.py services/writer/plain_requests.py services/gateway/messages/plain_sends/*.py)
PROTO_SOURCES  := $(wildcard protos/penstock/v1/*.proto protos/services/gateway/v2/*.proto)
# They try a share of their steps in `make test`, and all of them with ALL_STEPS=1.
STEP_TESTS = $(shell grep -rl "^from steps_to_try" tests --include "test_*.py" | grep -v tests/faults/ | sort)
# Stores of tests are in memory where 8 GiB are free: no power is cut for real, and syncs of a disk are much of the waiting.
MEMORY = $(shell df --output=avail -BG /dev/shm 2>/dev/null | awk 'NR == 2 && $$1 + 0 >= 8 {print "/dev/shm"}')
PROTOC = $(BIN)/python -m grpc_tools.protoc -I protos $(PROTO_SOURCES)

##@ Start here

help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMPS)/kernels ## Make .venv, install the pinned dependencies, compile the kernels

setup-spark: $(STAMPS)/spark ## Add Spark to .venv (0.8 GB; for docs/pipeline.md, not for the store)

demo: setup $(if $(filter 0,$(SPARK)),,setup-spark) ## Store and read back 336,776 flights, orders, reminders, transactions; STAY=1 leaves the services up, SPARK=0 saves 0.8 GB
	@$(BIN)/python -m cli.demo $(if $(filter-out 0,$(STAY)),--stay) $(if $(filter 0,$(SPARK)),--no-spark)

##@ Work on it

test: setup $(if $(filter 0,$(SPARK)),,setup-spark) ## Run the tests (PYTEST_ARGS="-k name" for some; SPARK=0 saves 0.8 GB and leaves out the pipeline)
	@GRPC_VERBOSITY=NONE $(and $(MEMORY),PYTEST_DEBUG_TEMPROOT=$(MEMORY)) $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal \
	  -m "not conformance and not compose and not slow and not browser$(if $(filter 0,$(SPARK)), and not spark)" \
	  $(if $(filter 0,$(SPARK)),--ignore tests/pipeline) $(PYTEST_ARGS)

test-spark: setup-spark ## Run every test that starts Spark, also the slow ones: kills, speculation
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "spark and not conformance" \
	  $(PYTEST_ARGS)

test-console: setup ## Drive the console with a Chromium: the whole way of a message; screenshots into docs/console/ (Debian: apt install chromium)
	@GRPC_VERBOSITY=NONE PENSTOCK_SCREENSHOTS=docs/console $(BIN)/python -m pytest -q -p no:cacheprovider -m browser tests/console $(PYTEST_ARGS)

kill-streams: setup-spark ## Kill KILLS=500 drivers of streams at seeded points (10 s each)
	@PENSTOCK_STREAM_KILLS=$(or $(KILLS),500) $(BIN)/python -m pytest -q --timeout 600 \
	  tests/pipeline/source/test_spark_stream_kills.py $(PYTEST_ARGS)

check: setup ## Format, lint, strict types, import rules, stubs and lock file up to date
	@echo "format";  $(BIN)/ruff format --check .
	@echo "lint";    $(BIN)/ruff check .
	@echo "types";   $(BIN)/mypy; $(BIN)/mypy --strict --no-error-summary tests/client/typing_example.py
	@echo "imports"; $(BIN)/lint-imports --no-cache
	@echo "stubs";   fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; \
	  $(PROTOC) --python_out="$$fresh" --pyi_out="$$fresh" --grpc_python_out="$$fresh"; \
	  for stubs in penstock/v1 services/gateway/v2; do \
	    diff -r -x __init__.py -x __pycache__ "$$fresh/$$stubs" $$stubs \
	      || { echo "$$stubs is not what protos/ generates: run make protos"; exit 1; }; done
	@echo "lock";    $(BIN)/python -m pip check; $(BIN)/python -m pytest -q -p no:cacheprovider tests/test_packaging.py

format: setup ## Format the code and fix what the linter can
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

protos: $(STAMPS)/installed ## Generate penstock/v1 and services/gateway/v2 from protos/
	@$(PROTOC) --python_out=. --pyi_out=. --grpc_python_out=.

docs: setup ## Write the settings table of docs/operations.md again
	@$(BIN)/python -m cli.settings_table

lock: $(STAMPS)/installed ## Pin the newest dependencies in requirements.lock and requirements-spark.lock
	@env -u PIP_FIND_LINKS $(BIN)/pip-compile --quiet --upgrade --extra demo --extra dev --strip-extras \
	  --no-emit-find-links --output-file=requirements.lock pyproject.toml
	@env -u PIP_FIND_LINKS $(BIN)/pip-compile --quiet --upgrade --extra spark --extra lakehouse --strip-extras \
	  --no-emit-find-links --constraint=requirements.lock --output-file=requirements-spark.lock \
	  pyproject.toml

audit: $(STAMPS)/audit ## Look for known vulnerabilities of what the lock files pin (network; skipped loudly without)
	@$(BIN)/python deploy/audit.py $(VENV)/audit/bin/pip-audit requirements.lock requirements-spark.lock

##@ Try it for real

# A broker's start and stop wait more than they work.
conformance: setup ## Compare with a real broker (needs Java and Maven)
	@$(BIN)/python -m pytest -q -n $(CONFORMANCE_WORKERS) --dist worksteal -m conformance --timeout 900 tests/conformance $(PYTEST_ARGS)

bench: setup ## Measure, each figure beside its limit; results in bench/results/
	@$(BIN)/python -m bench $(BENCH_ARGS)

bench-peers: setup ## Compare with RocketMQ, Kafka, NATS and Redis on the same cells (network, Java, Maven, Go; an hour; BENCH_ARGS=--quick)
	@$(BIN)/python -m bench.peers $(BENCH_ARGS)

kill-test: setup ## Kill writers and drivers of staged commits, readers that lease, and the gateway, 500 times (KILLS=n for another number)
	@ALL_STEPS=1 KILLS=$(if $(KILLS),$(KILLS),500) $(BIN)/python -m pytest -q --timeout 7200 \
	  tests/e2e/test_killed_staged_commits.py tests/engine/test_power_cut_staged_commits.py \
	  tests/e2e/test_killed_leases.py tests/e2e/test_killed_messaging.py $(PYTEST_ARGS)

power-cuts: setup ## Cut the power of simulated machines 20,000 times (CUTS=n for another number; 60 a second)
	@ALL_STEPS=1 CUTS=$(or $(CUTS),20000) $(BIN)/python -m pytest -q -n $(WORKERS) --timeout 7200 \
	  tests/engine/test_power_cuts.py tests/retention/test_retention_cuts.py $(PYTEST_ARGS)

faults: setup ## Damage stores, kill services, fail calls, fill disks, cut power in every way there is (FLIPS=10000, KILLS_TOGETHER=500, ...); hours
	@ALL_STEPS=1 FLIPS=$(or $(FLIPS),10000) FILESYSTEM_CUTS=$(or $(FILESYSTEM_CUTS),100) KILLS_TOGETHER=$(or $(KILLS_TOGETHER),500) \
	  FAILING_CALLS=$(or $(FAILING_CALLS),300) FILL_UPS=$(or $(FILL_UPS),30) MALFORMED=$(or $(MALFORMED),20000) \
	  $(BIN)/python -m pytest -q --timeout 14400 tests/faults $(STEP_TESTS) $(PYTEST_ARGS)

clients-test: setup ## Run RocketMQ's official clients against it (CLIENTS="python node", SCENARIOS="...", REFERENCE=1 beside a real broker, SPLIT=1 with split routes, SECURE=1 over TLS with credentials, SLOW=1)
	@$(BIN)/python tests/clients --clients "$(CLIENTS)" --scenarios "$(SCENARIOS)" \
	  $(if $(filter-out 0,$(REFERENCE)),--reference) $(if $(filter-out 0,$(SLOW)),--slow) $(if $(filter-out 0,$(SPLIT)),--split) \
	  $(if $(filter-out 0,$(SECURE)),--secure)

compose-test: setup ## Build deploy/, start it, kill each container in turn, find nothing lost
	@$(BIN)/python deploy/compose_test.py

wheel-test: setup ## Install the wheel with Spark where there is no Java, and read a store (1 GB, network)
	@$(BIN)/python deploy/wheel_test.py

clean: ## Remove .venv and everything generated that is not committed
	@rm -rf $(VENV) build dist .demo .clients .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Penstock needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Try make PYTHON=python3.12"; exit 1; }
	@echo "making $(VENV)"
	@$(PYTHON) -m venv $(VENV) \
	  || { rm -rf $(VENV); echo "python3 -m venv failed; on Debian and Ubuntu: apt install python3-venv"; exit 1; }

$(STAMPS)/installed: requirements.lock pyproject.toml | $(BIN)/python
	@echo "installing the pinned dependencies (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --use-pep517 -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/kernels: $(STAMPS)/installed $(KERNEL_SOURCES)
	@echo "compiling the kernels (once: a minute or two on two idle cores)"
	@$(BIN)/python -m storage.kernels services.writer.plain_requests services.gateway.messages.plain_sends.request_kernels services.gateway.messages.plain_sends.record_kernels
	@touch $@

# Its dependencies are not ours.
$(STAMPS)/audit: | $(STAMPS)/installed
	@$(BIN)/python -m venv $(VENV)/audit
	@$(VENV)/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	@touch $@

$(STAMPS)/spark: $(STAMPS)/kernels requirements-spark.lock
	@echo "installing Spark (once: 0.8 GB)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-spark.lock
	@touch $@

.PHONY: help setup setup-spark demo test test-console test-spark kill-streams kill-test power-cuts faults check format protos docs lock audit conformance clients-test bench bench-peers compose-test wheel-test clean
