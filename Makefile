# `make help` lists the targets. Variables: PYTHON (makes .venv), EXTRAS (what of it; a node needs `worker` alone),
# DATA (data directory), PORT, ONLY (of bench and test-gpu), PART (of test-real and test-long), SBOM (a file).
# Without a GPU, put the CPU build of PyTorch into .venv first: it saves gigabytes of downloads, and is kept.

PYTHON ?= python3
EXTRAS ?= server,worker,torch
RANKZERO := .venv/bin/rankzero
# uv, with pip's settings: it installs in a fifth of the time, as links into its cache where it can.
INSTALL := .venv/bin/python -P worker/environments/pip_settings.py .venv/bin/uv pip install -q --python .venv/bin/python -c constraints.txt
NODE := .venv/bin/node
NODE_TEST = $(NODE) --test --test-reporter=dot 'tests/**/*.test.js'
# Modules are compiled by whoever imports them first: here what every start imports, beside each other.
IMPORT := printf '%s\n' 'torch.distributed.run, torch.utils.tensorboard' 'dashboard.app.server' 'cli.main, worker.agent.worker' \
	| xargs -P 2 -I '{}' .venv/bin/python -c 'import {}' > /dev/null 2>&1 || :
COMPILE := .venv/bin/python -m compileall -qq -j 0 -x '/tests/|/testing/_internal/' .venv/lib cli dashboard db domain rankzero worker || :
SBOM := sbom.json
UP_OPTIONS := $(if $(DATA),--data $(DATA)) $(if $(PORT),--port $(PORT))

# What the tests import is rewritten and compiled once, not again by each of their processes.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo up setup-test check words sbom audit quick test test-real test-turn test-long test-compose bench gpu-wheels test-gpu constraints

help:  ## print this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' Makefile | expand -t 20

setup: .venv/installed  ## install Rankzero into .venv
	@:

demo: setup  ## start dashboard and worker, and a 2-process demo training
	@exec $(RANKZERO) up --demo $(UP_OPTIONS)

up: setup  ## start dashboard and worker on this machine
	@exec $(RANKZERO) up $(UP_OPTIONS)

setup-test:  ## also install the packages and programs that the tests need
	@tests/setup & programs=$$!; $(MAKE) -s node_modules/.package-lock.json; packages=$$?; wait $$programs && exit $$packages

# mypy ends with 2 where its processes do not find each other on a busy machine; one process alone does without.
check: setup-test words  ## format, lint, words, types, import directions, dangerous calls
	@.venv/bin/ruff format --check --quiet .
	@.venv/bin/ruff check --quiet .
	@$(NODE) node_modules/.bin/biome check --error-on-warnings > .venv/biome.log 2>&1 || { cat .venv/biome.log; exit 1; }
	@$(NODE) node_modules/.bin/tsc
	@.venv/bin/mypy --no-error-summary || { [ $$? = 2 ] && .venv/bin/mypy --no-error-summary --num-workers 0; }
	@.venv/bin/lint-imports > .venv/lint-imports.log || { cat .venv/lint-imports.log; exit 1; }
	@$(MAKE) -s .venv/bandit

# grep ends with 1 where it finds none: any other end is a failure.
words:  ## find the phrases of tests/avoided_words.txt in documents and code
	@grep -rnIiE --include='*.py' --include='*.js' --include='*.md' -f tests/avoided_words.txt \
		README.md CONTRIBUTING.md CHANGELOG.md docs cli dashboard db domain rankzero worker; [ $$? = 1 ] \
		|| { echo 'Write these in plain words: tests/avoided_words.txt lists phrases to avoid.' >&2; exit 1; }

# Each file alone, on two cores: only what has changed since bandit last agreed.
.venv/bandit: pyproject.toml $(shell find cli dashboard db domain rankzero worker -name '*.py' 2> /dev/null)
	@printf '%s\n' $(filter %.py,$(if $(filter pyproject.toml,$?),$^,$?)) \
		| xargs -P 2 -n 100 .venv/bin/bandit -q -c pyproject.toml > .venv/bandit.log 2>&1 \
		|| { grep -v -e 'Test in comment' -e 'no failed test' .venv/bandit.log; exit 1; }
	@touch $@

sbom: setup-test  ## write sbom.json: every pinned package, as CycloneDX lists them
	@PYTHONWARNINGS=ignore .venv/bin/cyclonedx-py requirements constraints.txt --pyproject pyproject.toml --output-reproducible -o $(SBOM)

audit: setup  ## ask today's lists of vulnerabilities about every pinned package; needs the internet
	@.venv/bin/uv tool run -q --from pip-audit==2.10.0 pip-audit --strict --no-deps --disable-pip -r constraints.txt

quick: setup-test  ## the tests of the files changed since the last commit, and of domain/
	@.venv/bin/ruff check --quiet .
	@$(NODE) node_modules/.bin/biome lint --error-on-warnings > .venv/biome.log 2>&1 || { cat .venv/biome.log; exit 1; }
	@$(NODE_TEST)
	@.venv/bin/pytest --numprocesses=2 -q -m "not training" tests/domain $$(.venv/bin/python tests/changed.py) $(PYTEST_OPTIONS)

test: check  ## rules, worker and dashboard in process, and six real journeys
	@$(NODE_TEST)
	@.venv/bin/pytest --lane=test --numprocesses=3 $(PYTEST_OPTIONS)

test-real: check  ## what only a kernel, a socket or a browser shows (PART=hosts: some of it)
	@.venv/bin/pytest --lane=real --numprocesses=2 $(if $(PART),--part=$(PART),--record) $(PYTEST_OPTIONS)

test-turn: setup-test  ## of test-real, what the last day's commits touch and as many others as fit into 20 minutes
	@.venv/bin/python -m tests.turn $(PYTEST_OPTIONS)

test-long: check .venv/installed-frameworks  ## the long loops, matrices and frameworks (PART=hosts: some of them)
	@.venv/bin/pytest --lane=long --numprocesses=2 -v -o console_output_style=count --durations=40 $(if $(PART),--part=$(PART)) $(PYTEST_OPTIONS)

test-compose: setup-test  ## build the image, run docker-compose.yml and train in it
	@tests/setup docker.io debootstrap
	@.venv/bin/pytest -m compose -s tests/compose $(PYTEST_OPTIONS)

bench: setup-test  ## measure against peers and limits, one table (ONLY="event_files …" for some)
	@.venv/bin/python -m benchmarks $(ONLY)

gpu-wheels: setup  ## collect the wheels that test-gpu needs beyond torch where there is no network
	@.venv/bin/python -m benchmarks.gpu.wheels --python $(GPU_PYTHON)

# With the wheels in an environment of its own, beside the torch of PYTHON; without them in .venv.
GPU_PYTHON := 3.12
GPU_WHEELS := $(wildcard benchmarks/gpu/wheels/*.whl)
GPU_ENV := $(if $(GPU_WHEELS),.venv-gpu,.venv)

test-gpu: $(GPU_ENV)/installed  ## prove on this machine's NVIDIA GPU what only a GPU shows: one table, eight minutes
	@$(GPU_ENV)/bin/python -m benchmarks.gpu $(ONLY)

.venv-gpu/installed: $(GPU_WHEELS)
	@$(PYTHON) -c 'import torch' 2> /dev/null || { echo "$(PYTHON) has no torch: make test-gpu PYTHON=… names the one that has." >&2; exit 1; }
	@$(PYTHON) -m venv --clear --system-site-packages .venv-gpu
	@.venv-gpu/bin/python -m pip install -q --disable-pip-version-check --no-index --no-deps $(GPU_WHEELS)
	@$(PYTHON) -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parents[1])' > $$(echo .venv-gpu/lib/python3*/site-packages)/torch.pth
	@printf '#!%s\nfrom torch.distributed.run import main\nmain()\n' $(CURDIR)/.venv-gpu/bin/python > .venv-gpu/bin/torchrun
	@chmod +x .venv-gpu/bin/torchrun
	@touch $@

constraints: setup-test .venv/installed-frameworks  ## write constraints.txt from the packages in .venv
	@sed -n '/^#/p' constraints.txt > .venv/constraints.txt
	@.venv/bin/python -m pip freeze --all --exclude-editable | sed -E -e /^pip==/d -e 's/^(torch==[^+]+)\+.*/\1/' >> .venv/constraints.txt
	@mv .venv/constraints.txt constraints.txt

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Rankzero needs Python 3.11 or newer, this is %d.%d: make setup PYTHON=python3.x" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	@test -x .venv/bin/python || echo "Installing into .venv; the first time takes minutes, PyTorch is large."
	@$(PYTHON) -m venv .venv || { echo "On Debian and Ubuntu: apt-get install python3-venv" >&2; rm -rf .venv; exit 1; }
	@.venv/bin/python -m pip install -qq --disable-pip-version-check --no-compile -c constraints.txt uv
	@$(INSTALL) -e '.[$(EXTRAS)]'
	@$(IMPORT)
	@touch $@

.venv/installed-test: .venv/installed
	@$(INSTALL) -e '.[test]'
	@$(COMPILE)
	@touch $@

# What package-lock.json pins, with the Node.js of .venv.
node_modules/.package-lock.json: package.json package-lock.json .venv/installed-test
	@PATH="$(CURDIR)/.venv/bin:$$PATH" npm ci --silent --ignore-scripts
	@touch $@

.venv/installed-frameworks: .venv/installed-test
	@$(INSTALL) -e '.[frameworks]'
	@$(COMPILE)
	@touch $@
