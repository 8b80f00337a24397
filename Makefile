# Everything runs in .venv, made from requirements.lock. `make help` lists the targets.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
ARGS   ?=
ONLY   ?=
WORKERS ?= $(shell expr 5 \* `nproc 2>/dev/null || echo 2` / 2)

.PHONY: help demo test faults mutants soak kills fuzz lint bench sbom audit docs site replay recording screenshots lock
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# stdout belongs to the commands: what the set-up says goes to stderr
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	@echo "setting up $(VENV): downloads the packages of requirements.lock, which takes a few minutes the first time" >&2
	@$(PYTHON) -m venv $(VENV) >&2
	@$(BIN)/pip install --disable-pip-version-check --require-hashes -r requirements.lock >&2
	@$(BIN)/pip install --disable-pip-version-check --no-deps --no-build-isolation -e . >&2
	@touch $@

demo: $(READY) ## the main job on a practice cluster; ARGS="-o json" for JSON
	@$(BIN)/rebalancer demo $(ARGS)

# Most tests wait for servers, so a few run at a time. Those that a busy machine disturbs are marked `quiet` and run
# first, two at a time; meanwhile the bytecode of all test modules is written, which each worker would otherwise make for
# itself. Nothing is run twice: a failure fails. pytest's 5 is "no such test": with ARGS one of the two may have none
test: export PYTHONDONTWRITEBYTECODE =
test: $(READY) ## all tests; installs the real servers they need when root and apt are there; ARGS="-k name"
	@sh tests/install_real_parts.sh >&2
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m quiet $(ARGS); few=$$?; \
	  $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not quiet" $(ARGS); many=$$?; \
	  [ $$many -eq 0 ] || [ $$many -eq 5 ] || exit $$many; \
	  [ $$few -eq 0 ] || [ $$few$$many = 50 ] || exit $$few

faults: $(READY) ## faults, and attacks by actor, each with a verdict; ARGS="-k name"
	@sh tests/install_real_parts.sh >&2
	@$(BIN)/python -m tests.faults.programs.matrix $(ARGS)

soak: $(READY) ## eight simulated hours of faults and 1,000 failovers, with a verdict; ARGS="--seed 2 --hours 1"
	@sh tests/install_real_parts.sh >&2
	@$(BIN)/python -m tests.faults.programs.soak $(ARGS)

kills: $(READY) ## kill -9 of a running daemon at 200 random moments on SQLite and on PostgreSQL; ARGS="--seed 2 --kills 20"
	@sh tests/install_real_parts.sh >&2
	@$(BIN)/python -m tests.faults.programs.kills $(ARGS)

fuzz: $(READY) ## 100,000 odd objects for a running daemon, with a verdict; ARGS="--seed 2 --objects 1000"
	@$(BIN)/python -m tests.faults.programs.fuzz $(ARGS)

mutants: $(READY) ## break what each row of the fault matrix promises: its tests must find it; ARGS="-k row"
	@sh tests/install_real_parts.sh >&2
	@$(BIN)/python -m tests.faults.programs.mutants $(ARGS)

lint: $(READY) ## ruff, mypy --strict, import contracts, generated references up to date
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python docs/generate.py --check

bench: $(READY) ## benchmarks, one JSON object a line; ONLY=name for one, with ARGS="--seeds 3" its options
	@$(BIN)/python -m bench $(ONLY) $(ARGS)

sbom: ## the software bill of materials of the image's packages on stdout (CycloneDX)
	@python3 deploy/sbom.py

audit: $(READY) ## known vulnerabilities of the locked packages; ADVISORIES=FILE: OSV's export for PyPI, a zip or folder
	@$(BIN)/python deploy/audit.py $(ADVISORIES)

docs: $(READY) ## write the generated references under docs/reference
	@$(BIN)/python docs/generate.py

site: $(READY) ## the documentation as a site in dist/site; a missing page or a broken link fails the build
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --config-file docs/site/mkdocs.yml $(ARGS)

screenshots: $(READY) ## write the pictures of the dashboard under docs/images (needs chromium)
	@$(BIN)/python docs/screenshots.py

replay: $(READY) ## write the example of a replay under docs/examples; REBALANCER_TRACES names folders of CPU traces
	@$(BIN)/python docs/replay_example.py $(ARGS)

recording: $(READY) ## record the demo: docs/images/demo.svg
	@$(BIN)/python docs/recording.py $(ARGS)

lock: $(READY) ## write requirements.lock (needs pip-tools)
	@$(BIN)/python -m piptools compile --quiet --extra dev --extra distributed --generate-hashes --strip-extras --allow-unsafe \
	  --no-header --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
	  --output-file requirements.lock pyproject.toml
	@$(BIN)/python deploy/locks.py
