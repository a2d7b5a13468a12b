# Everything runs in .venv, which is made when it is missing or pyproject.toml has changed.
PYTHON ?= python3
BIN := .venv/bin
# Two a core: a third of the time tests wait, for a server, a JVM or a deadline.
TESTERS ?= $(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN))))

# Without the cache of compiled modules, collecting the tests takes four times as long, and so does each child of theirs.
export PYTHONDONTWRITEBYTECODE =
# A test that hangs fails after twenty minutes, and the others are run.
PYTEST = $(BIN)/python -m pytest --timeout=1200 --numprocesses=$(TESTERS) --maxprocesses=8 --dist=loadfile --no-loadscope-reorder

MUTATED := abscli/protocol,abscli/planner,abscli/report,formats/native,abscli/engine/sinks

.PHONY: demo test test-integration test-soak mutants setup lint docs site packages reader reader-buckets bench lock clean

demo: setup  ## two jobs: run, killed, restored, compared
	@$(BIN)/abs demo
	@echo 'abs is $(BIN)/abs here; with `. $(BIN)/activate` it is on PATH. README.md says what to do with it.'

test: setup  ## lint, types, and the tests that start no JVM, server or other host: about five minutes
	@$(BIN)/python -m tests.estimate fast
	@$(PYTEST) --tier=fast

test-integration: setup  ## tests on real Flink and Spark, PostgreSQL, Kafka, object stores, several hosts, a browser
	@$(BIN)/python -m tests.estimate integration
	@$(PYTEST) --tier=integration

test-soak: setup  ## all releases of Flink, and long searches, in pieces of 30 minutes: run it again to go on
	@$(BIN)/python -m tests.soak

mutants: setup  ## sixty changes to the code, one at a time, which the tests of the first tier should notice: an hour
	@$(BIN)/python -m tests.mutants --packages $(MUTATED) --sample 12 --seed 1 --tests tests --tier fast --out build/mutants

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
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict -f man/guide/mkdocs.yml
	@echo 'Open build/site/index.html. Search needs a server: $(BIN)/python -m http.server -d build/site'

packages: setup  ## wheel and sdist, built, installed with pipx, uv and the steps of Containerfile, and tried; needs PyPI
	@PYTHON=$(abspath $(BIN)/python) .ci/packages

reader: setup  ## one file that reads Flink and Spark checkpoints on local disks: build/abs-reader.pyz; needs PyPI
	@.ci/reader abs-reader

reader-buckets: setup  ## the same file with a client for S3, GCS and Azure: build/abs-reader-buckets.pyz
	@.ci/reader abs-reader-buckets

lock:  ## versions and hashes of what the set-up installs, renewed; needs uv
	@.ci/lock

bench: setup
	@for file in $$(find tests/bench -name 'bench_*.py' | sort); do \
		name=$$(echo "$${file%.py}" | tr / .); echo "== $$name"; $(BIN)/python -m "$$name" || exit 1; done

clean:
	rm -rf .venv .venv-flink .azurite build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find abscli formats tests -name __pycache__ -type d -prune -exec rm -rf {} +
