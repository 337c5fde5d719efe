# `make help` lists the targets. Needs Linux, Python 3.11 or newer with pip and venv, and make.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
CLOUD ?= local
CAP ?=
RUN ?=
YES ?=
JOBS ?= 2
SAMPLES ?= 5000
SEED ?= 0
REPLAY ?=
WRITE ?=
WITHOUT ?=
PINS ?=
UPGRADE ?=
SIZES ?=
SINGLES ?=
REHEARSE ?=

BIN := .venv/bin
GPURUN := $(BIN)/gpurun
WHEELS := .wheels
CODE := orchestrator agent_env benchmarks tests tools runbooks/examples
PIP_QUIET := -qq --disable-pip-version-check --only-binary :all:
# Python compiles what is imported, when it is: a third of what a stack holds.
PIP_INSTALL := pip install $(PIP_QUIET) --no-compile
PIP_INSTALL_OURS := pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .
# Installing ours writes its metadata beside the code, and several environments are made at once.
ALONE := flock Makefile
LOCK := $(BIN)/uv pip compile --quiet --generate-hashes --no-header --no-annotate --no-build
LOCK_ANY := $(LOCK) --universal --python-version 3.11
# Two of what they need come only as source archives, pure Python.
RAY_FILES := --only-binary :all: --no-binary antlr4-python3-runtime --no-binary func-timeout

# Local boxes install their pins from here, so that a box needs no network.
export GPURUN_WHEELS ?= $(CURDIR)/$(WHEELS)

##@ Start here
.PHONY: help setup wheels train-setup openenv-setup ray-setup
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: .venv/.installed ## Make .venv from the hash lock (idempotent)

wheels: $(WHEELS)/cpu/.complete ## Download the wheels that local boxes install from (0.3 GB)

train-setup: .venv-train/.installed ## Make .venv-train: torch and TRL on the CPU, for the tests of the training helpers

openenv-setup: .venv-openenv/.installed ## Make .venv-openenv: stock OpenEnv, the peer of the interop tests

ray-setup: .venv-ray/.installed ## Make .venv-ray: verl, SkyRL and Ray on the CPU, for the tests of their adapters

##@ Run
.PHONY: gpu-proof gpu-check kill-proof pull sweep cloud-stop
ifeq ($(CLOUD),aws)
gpu-proof: setup ## The main job: rehearsal on the local cloud; CLOUD=aws CAP=40 runs it on AWS (asks first)
	@test -n "$(CAP)" || { echo "CLOUD=aws spends money: say how much at most, e.g. CAP=40" >&2; exit 2; }
	$(GPURUN) up runbooks/gpu-proof.yaml --cloud aws --cap $(CAP)$(if $(YES), --yes)
else
gpu-proof: setup $(WHEELS)/cpu/.complete
	$(GPURUN) up runbooks/rehearsal.yaml --cloud $(CLOUD) --yes$(if $(CAP), --cap $(CAP))
endif

gpu-check: $(if $(REHEARSE),.venv-train/.installed) ## Can jobs train on this machine's NVIDIA GPU? 8 min, makes .venv-gpu (4 GB to download); REHEARSE=1 needs no GPU
	$(PYTHON) -m tools.gpu_check $(if $(REHEARSE),--rehearse)

kill-proof: setup ## Show that every enforcer by itself ends a box; CLOUD=aws does it on AWS for a cent (asks first)
	$(GPURUN) kill-proof --cloud $(CLOUD)$(if $(CAP), --cap $(CAP))$(if $(YES), --yes)

pull: setup ## Pull a run's results: RUN=id
	@test -n "$(RUN)" || { echo "which run? make pull RUN=<run id>" >&2; exit 2; }
	$(GPURUN) pull $(RUN) --cloud $(CLOUD)

sweep: setup ## List what carries our tag; YES=1 ends what is past its expiry
	$(GPURUN) sweep --cloud $(CLOUD)$(if $(YES), --yes)

cloud-stop: setup ## Stop the local cloud and its boxes; its buckets and budgets go with it
	$(GPURUN) cloud stop --yes

##@ Develop
.PHONY: fmt lint types imports shell check test test-main test-beside quick test-train test-openenv test-ray faults chaos scoreboard bench readme lock pins drift clean
fmt: setup ## Format and sort
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix --quiet $(CODE) || true

lint: setup ## ruff
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)

types: setup ## mypy --strict
	$(BIN)/mypy

imports: setup ## import-linter: the layers of docs/architecture.md
	@$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

shell: setup ## shellcheck: the scripts as they are rendered, and our own
	$(BIN)/shellcheck --shell=bash .ci/run $$(find $(CODE) templates -name '*.sh')

check: lint types imports shell ## Everything that needs no running

test: ## All tests: the main ones; beside them those that train, those with OpenEnv itself, those on Ray
	@$(MAKE) -j4 setup train-setup openenv-setup ray-setup
	@$(MAKE) -j2 test-main test-beside

test-main: setup
	-$(BIN)/python -m tools.unsloth_drift --fetch-only
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal -q --durations=25

test-beside: # told one by one, when each is through, so that the main ones are seen as they run
	@$(MAKE) --keep-going --output-sync=target test-train test-openenv test-ray

quick: setup ## The tests that start no box and train nothing
	$(BIN)/python -m pytest -n $(JOBS) -q -m "not slow and not aws and not gpu"

test-train: train-setup ## Only the tests that need torch and TRL
	.venv-train/bin/python -m pytest -m "trl and not aws and not gpu" -q

test-openenv: openenv-setup ## Only the tests against OpenEnv's own client, server and validator
	.venv-openenv/bin/python -m pytest -m openenv -q

test-ray: ray-setup ## Only the tests of the adapters to verl and SkyRL
	.venv-ray/bin/python -m pytest -m "verl or skyrl" -q

faults: setup ## The search over faults (15 min): every single one, SAMPLES pairs and triples; REPLAY="…" lives through one
	$(BIN)/python -m tests.faults --workers $(JOBS) $(if $(REPLAY),--replay "$(REPLAY)",--samples $(SAMPLES) --seed $(SEED) $(if $(SINGLES),--singles $(SINGLES)) $(addprefix --without ,$(WITHOUT)))

chaos: setup ## The env server killed, stopped and frozen under a full eval, then 10,000 schedules of faults (6 min): no number may change
	$(BIN)/python -m tests.agent_env.chaos --seed $(SEED)
	$(BIN)/python -m pytest tests/agent_env/schedules_test.py --hypothesis-profile=chaos --timeout=0 -q

scoreboard: setup ## The same bad luck for five ways to cap what a box costs; WRITE=1 renews docs/scoreboard.md
	$(BIN)/python -m tests.faults.scoreboard --workers $(JOBS) $(if $(WRITE),--write)

bench: setup train-setup openenv-setup ## Measurements: how fast the command answers, what the env server costs, how much the model learns
	$(BIN)/python -m benchmarks

readme: setup ## Write the README's tables anew from the command's own output
	$(BIN)/python -m benchmarks.readme $(if $(RUN),--run $(RUN))

lock: setup ## Lock again what people and CI install
	$(LOCK_ANY) pyproject.toml --extra local --extra dev -o requirements/dev.txt
	$(LOCK_ANY) requirements/wheels.in -c requirements/dev.txt -o requirements/wheels.txt
	$(LOCK_ANY) requirements/train.in -c requirements/dev.txt --excludes requirements/train-excluded.in \
	  -o requirements/train.txt
	$(LOCK_ANY) requirements/openenv.in -c requirements/dev.txt --excludes requirements/openenv-excluded.in \
	  -o requirements/openenv.txt
	UV_FIND_LINKS="$${PIP_FIND_LINKS:-}" $(filter-out --no-build,$(LOCK_ANY)) $(RAY_FILES) requirements/ray.in \
	  --excludes requirements/ray-excluded.in -o requirements/ray.txt

pins: setup ## Resolve the boxes' stacks again and say what differs; WRITE=1 writes, UPGRADE=1 takes the newest, SIZES=1 weighs (20 GB)
	$(BIN)/python -m tools.pins $(PINS) $(if $(WRITE),--write) $(if $(UPGRADE),--upgrade) $(if $(SIZES),--sizes)

drift: setup ## Compare Unsloth's pinned wheels with what we know of them (fetches 45 MB once); WRITE=1 renews the table
	$(BIN)/python -m tools.unsloth_drift $(if $(WRITE),--write)

clean: ## Remove what make made (not your results, not the local cloud's state)
	rm -rf .gpu-check .venv .venv-gpu .venv-openenv .venv-ray .venv-train $(WHEELS) .wheels-pins build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.installed: requirements/dev.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m $(PIP_INSTALL) --require-hashes -r requirements/dev.txt
	$(ALONE) $(BIN)/python -m $(PIP_INSTALL_OURS)
	touch $@

$(WHEELS)/cpu/.complete: templates/pins/cpu.txt requirements/wheels.txt
	rm -rf $(WHEELS)/cpu && mkdir -p $(WHEELS)/cpu
	$(PYTHON) -m pip download $(PIP_QUIET) --require-hashes --no-deps -d $(WHEELS)/cpu \
	  -r templates/pins/cpu.txt -r requirements/wheels.txt
	touch $@

.venv-train/.installed: $(WHEELS)/cpu/.complete requirements/train.txt pyproject.toml
	test -x .venv-train/bin/python || $(PYTHON) -m venv .venv-train
	.venv-train/bin/python -m $(PIP_INSTALL) --no-deps --no-index --find-links $(WHEELS)/cpu \
	  --require-hashes -r templates/pins/cpu.txt
	.venv-train/bin/python -m $(PIP_INSTALL) --no-deps --require-hashes -r requirements/train.txt
	$(ALONE) .venv-train/bin/python -m $(PIP_INSTALL_OURS)
	touch $@

.venv-openenv/.installed: requirements/openenv.txt pyproject.toml
	test -x .venv-openenv/bin/python || $(PYTHON) -m venv .venv-openenv
	.venv-openenv/bin/python -m $(PIP_INSTALL) --no-deps --require-hashes -r requirements/openenv.txt
	$(ALONE) .venv-openenv/bin/python -m $(PIP_INSTALL_OURS)
	touch $@

.venv-ray/.installed: $(WHEELS)/cpu/.complete requirements/ray.txt pyproject.toml
	test -x .venv-ray/bin/python || $(PYTHON) -m venv .venv-ray
	.venv-ray/bin/python -m $(PIP_INSTALL) $(RAY_FILES) --no-deps --find-links $(WHEELS)/cpu \
	  --require-hashes -r requirements/ray.txt
	# verl and TransferQueue install their tests under a name that hides ours.
	rm -rf .venv-ray/lib/python*/site-packages/tests
	$(ALONE) .venv-ray/bin/python -m $(PIP_INSTALL_OURS)
	touch $@
