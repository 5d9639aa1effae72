# Two commands on a machine with python3 (and its venv module) and make:
#   make env     an environment with FRAMEWORK (torch), built, verified
#   make test    everything that CI runs
PYTHON ?= python3
FRAMEWORK ?= torch
ENV ?= .venv
TOOL := .gpuenv-tool
GPUENV := $(TOOL)/bin/gpuenv
DEV := .gpuenv-dev

.PHONY: env verify test test-slow golden answers faults gpu check profiles bench compare release audit readme page clean help

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(TOOL)/.ready: pyproject.toml release/requirements.txt release/build.txt
	@$(PYTHON) scripts/private_venv.py $(TOOL)
	@touch $@

env: $(TOOL)/.ready ## build and verify an environment (FRAMEWORK=torch ENV=.venv ARGS=)
	@$(GPUENV) create $(ENV) --framework '$(FRAMEWORK)' $(ARGS)

verify: $(TOOL)/.ready ## verify it again
	@$(GPUENV) verify $(ENV) $(ARGS)

$(DEV)/.ready: pyproject.toml provision/__init__.py
	@$(PYTHON) scripts/private_venv.py $(DEV) --group dev
	@touch $@

check: $(DEV)/.ready ## lint and types
	@$(DEV)/bin/ruff format --check .
	@$(DEV)/bin/ruff check .
	@$(DEV)/bin/mypy

test: check ## everything that CI runs
	@$(DEV)/bin/python -m pytest -m "not slow" -n auto --dist loadfile --no-loadscope-reorder $(ARGS)

test-slow: $(DEV)/.ready ## the tests that install gigabytes
	@$(DEV)/bin/python -m pytest -m "slow" $(ARGS)

golden: $(DEV)/.ready ## write the sentences of all commands into tests/golden, and show what changed
	@$(DEV)/bin/python -m pytest -q --golden $$(grep -rl '[(, ]golden[),]' tests --include='test_*.py')
	@git diff --stat -p tests/golden

answers: $(DEV)/.ready ## let uv answer every question of the tests, and record what it says (after a change of uv or of profiles)
	@$(DEV)/bin/python -m pytest -q -m "not slow" -n auto --dist loadfile --no-loadscope-reorder --answers $(ARGS)
	@git diff --stat tests/data/uv_answers.json

faults: $(DEV)/.ready ## every script of tests/faults: runs killed, disks full, indexes broken, hostile files
	@failed=; for script in $$(grep -l '^if __name__' tests/faults/*.py); do \
	    echo "== $$script"; $(DEV)/bin/python $$script || failed="$$failed $$script"; \
	done; test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

gpu: $(DEV)/.ready ## verify ENV on a real NVIDIA GPU; fails where there is none
	@$(DEV)/bin/python tests/gpu/run_gpu.py $(ENV) $(ARGS)

profiles: $(DEV)/.ready ## read the index and show what would change in profiles/ (ARGS=--write)
	@$(DEV)/bin/python scripts/update_profiles.py $(ARGS)

bench: $(DEV)/.ready ## speed against uv and pip, as ratios; growth as docs/growth.svg (ARGS=--write)
	@$(DEV)/bin/python scripts/bench.py $(ARGS)

compare: $(DEV)/.ready ## 100 requirement sets of well-known projects: what uv solves, no release older without a reason (ARGS='--jobs 2', --time)
	@$(DEV)/bin/python scripts/compare_with_uv.py $(ARGS)

release: $(DEV)/.ready ## build twice from clones of HEAD, compare, put wheel, archive, SBOM and sums into dist/
	@$(DEV)/bin/python scripts/release.py $(ARGS)

audit: pyproject.toml ## known weaknesses in gpuenv's own requirements (needs the advisory service)
	@$(PYTHON) scripts/private_venv.py $(DEV)-audit --group audit
	@for file in release/requirements.txt release/requirements-conda.txt release/build.txt; do \
		$(DEV)-audit/bin/pip-audit --strict --require-hashes --disable-pip -r $$file || exit 1; done

readme: $(DEV)/.ready ## run the sessions of README.md and docs/ again
	@$(DEV)/bin/python scripts/sessions.py --write

page: $(DEV)/.ready ## compute docs/compatibility.html from profiles/, in minutes (ARGS=--check: only compare)
	@$(DEV)/bin/python scripts/compatibility_page.py $(or $(ARGS),--write)

clean: ## remove what make made (not ENV)
	rm -rf $(TOOL) $(DEV) $(DEV)-audit build dist
