# Everything runs in .venv, which is made when it is missing or pyproject.toml has changed.
PYTHON ?= python3
BIN := .venv/bin
# Two a core: a third of the time tests wait, for a server, a JVM or a deadline.
TESTERS ?= $(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN))))

.PHONY: demo test setup lint docs site packages bench lock clean

demo: setup  ## two jobs: run, killed, restored, compared
	@$(BIN)/abs demo
	@echo 'abs is $(BIN)/abs here; with `. $(BIN)/activate` it is on PATH. README.md has a session, and what a job file is.'

test: setup lint  ## everything that has to hold
	@$(BIN)/python -m tests.estimate
	@$(BIN)/python -m pytest --numprocesses=$(TESTERS) --maxprocesses=8 --dist=loadfile --no-loadscope-reorder

setup: .venv/.ready

.venv/.ready: pyproject.toml .ci/setup .ci/build.txt .ci/requirements.txt .ci/java.txt
	@PYTHON="$(PYTHON)" .ci/setup

lint: setup
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: setup  ## completions/ and man/ from the command line itself, pictures from rules and imports
	$(BIN)/python -m abscli.cli.generate
	$(BIN)/python -m tests.support.architecture
	$(BIN)/python -m tests.support.sim.loss_pictures

site: setup  ## the guide as a site, in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict -f man/guide/mkdocs.yml

packages: setup  ## wheel and sdist, built, installed with pipx, uv and the steps of Containerfile, and tried; needs PyPI
	@PYTHON=$(abspath $(BIN)/python) .ci/packages

lock:  ## versions and hashes of what the set-up installs, renewed; needs uv
	@.ci/lock

bench: setup
	@for file in $$(find tests/bench -name 'bench_*.py' | sort); do \
		name=$$(echo "$${file%.py}" | tr / .); echo "== $$name"; $(BIN)/python -m "$$name" || exit 1; done

clean:
	rm -rf .venv .venv-flink .azurite build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find abscli formats tests -name __pycache__ -type d -prune -exec rm -rf {} +
