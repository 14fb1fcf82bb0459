# Two commands matter: `make demo` and `make test`. Both need python3 (3.11 or later) and nothing else.
SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Many tests wait, so that two cores have work for three.
WORKERS ?= 3

# The tests start the program a hundred times: it shall not be compiled each time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo tools chart image image-test sbom local-judge test check unit thorough cover clients growth faults drills soak bench bench-api bench-peers bench-rules lock clean

help: ## Show this help.
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# A failed or interrupted install leaves no stamp, and is made anew.
$(VENV)/%.stamp: requirements/%.txt pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing requirements/$*.txt"
	@$(PIP) --require-hashes -r requirements/$*.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(VENV)/demo.stamp ## Run everything on this machine, on embedded servers. ONCE=1 ends by itself.
	@exec $(BIN)/score-consumer demo $(if $(ONCE),--once)

local-judge: $(VENV)/local-judge.stamp ## The demo with a small local model as judge (builds llama.cpp: minutes).
	@exec $(BIN)/python -m consumer.demo.local_judge

test: check tools cover ## All checks and tests.

check: $(VENV)/dev.stamp ## Lint, format, types, import rules, schemas.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports
	$(BIN)/score-consumer schemas

cover: $(VENV)/dev.stamp ## All tests, with branch coverage at its marks.
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest --numprocesses=$(WORKERS) --dist=worksteal
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --fail-under=90
	$(BIN)/coverage report --fail-under=100 --include='consumer/scoring/*,consumer/pipeline.py'

unit: $(VENV)/dev.stamp ## The quick tests only.
	$(BIN)/python -m pytest tests/unit tests/contract

thorough: $(VENV)/dev.stamp ## The property tests with a thousand examples each.
	$(BIN)/python -m pytest -m hypothesis --hypothesis-profile=thorough -o timeout=1800 \
		--numprocesses=$(WORKERS) --dist=worksteal

clients: $(VENV)/dev.stamp ## What Kafka clients of others send and read: Java, librdkafka, Go (needs a JDK, Maven, Go).
	$(BIN)/python -m pytest tests/clients -m "" --numprocesses=$(WORKERS) --dist=worksteal
growth: $(VENV)/dev.stamp ## That no input takes more than n log n, up to the largest that is let in (40 minutes).
	$(BIN)/python -m pytest tests/growth --growth-full -o timeout=1800 \
		--numprocesses=$(WORKERS) --dist=worksteal

findings: $(VENV)/dev.stamp ## How often what the rules say of real sessions is true, by people's labels.
	@$(BIN)/python -m tests.labelled.findings

faults: $(VENV)/dev.stamp ## Every fault test. KILLS=10 is how many random kills one makes.
	$(BIN)/python -m pytest tests/faults -m "" --kills=$(or $(KILLS),10) \
		--numprocesses=$(WORKERS) --dist=worksteal

drills: $(VENV)/dev.stamp tools ## Servers broken, processes harmed: which alert names it, and is all back? (30 minutes; SHORT=1: what CI runs)
	$(BIN)/python -m pytest tests/drills -m "$(if $(SHORT),ci_drill,drill)" \
		--numprocesses=$(WORKERS) --dist=worksteal

soak: $(VENV)/dev.stamp ## Random kills under load, with a report. KILLS=1000 MINUTES=60, OUT=folder.
	@exec $(BIN)/python -m tests.soak --kills $(or $(KILLS),60) --minutes $(or $(MINUTES),4) \
		$(if $(OUT),--out $(OUT))

bench: $(VENV)/dev.stamp ## What it does on this machine, against its marks; figures in dist/bench.json. FULL=1, NAMES="slots faults".
	@exec $(BIN)/python -m tests.bench $(NAMES) $(if $(FULL),--full) --json $(or $(OUT),dist/bench.json)

bench-rules: $(VENV)/demo.stamp ## How fast the rules are, and how time grows with a session's size.
	$(BIN)/python -m tests.bench.rules

bench-api: $(VENV)/dev.stamp ## How fast the API is with a million scores. Fills a database first: ten minutes, 6 GB.
	@exec $(BIN)/python -m tests.bench.api --json $(or $(OUT),dist/bench-api.json)

PEERS := .cache/peers

$(PEERS)/peers.stamp: requirements/peers.txt
	@test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	@echo "installing requirements/peers.txt"
	@$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

bench-peers: $(VENV)/dev.stamp $(PEERS)/peers.stamp ## Side by side with other judging libraries (800 MB, own environment). QUICK=1, NAMES="ragas openevals".
	@exec $(BIN)/python -m tests.bench.peers $(NAMES) --python $(PEERS)/bin/python \
		$(if $(QUICK),--quick) --json $(or $(OUT),dist/bench-peers.json)

VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' consumer/__init__.py)

tools: $(VENV)/dev.stamp ## Fetch the tools of the deployment's tests, where registries are reached.
	@sh tests/deploy/tools.sh

chart: $(VENV)/dev.stamp ## Write the chart's README table and settings schema anew.
	$(BIN)/python -m tests.deploy

image: ## Build the image (needs Docker).
	docker build --build-arg VERSION=$(VERSION) --tag score-consumer:$(VERSION) .

image-test: $(VENV)/dev.stamp ## Do the Dockerfile's steps without Docker, and score with the result (root, Linux).
	$(BIN)/python -m pytest tests/deploy/test_image.py -m image

sbom: ## Write dist/sbom.json (CycloneDX).
	@test -x .cache/sbom/bin/cyclonedx-py || \
		{ $(PYTHON) -m venv .cache/sbom && .cache/sbom/bin/pip install --quiet cyclonedx-bom==7.5.0; }
	@mkdir -p dist
	.cache/sbom/bin/cyclonedx-py requirements requirements/image.txt --pyproject pyproject.toml \
		--output-reproducible --output-file dist/sbom.json

lock: ## Pin all dependencies by hash (needs uv).
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--no-emit-index-url --no-annotate pyproject.toml requirements/build.in -o requirements/run.txt
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--no-emit-index-url --no-annotate pyproject.toml requirements/build.in --extra otel \
		-c requirements/run.txt -o requirements/image.txt
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--no-emit-index-url --no-annotate pyproject.toml requirements/build.in --extra demo \
		-c requirements/run.txt -o requirements/demo.txt
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--no-emit-index-url --no-annotate pyproject.toml requirements/build.in --extra demo --extra dev \
		-c requirements/demo.txt -c requirements/image.txt -o requirements/dev.txt
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--no-emit-index-url --no-annotate pyproject.toml requirements/build.in --extra demo \
		--extra local-judge -c requirements/demo.txt -o requirements/local-judge.txt
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
		--no-emit-index-url --no-annotate requirements/peers.in -o requirements/peers.txt

clean: ## Remove what was made here.
	rm -rf $(VENV) .cache .coverage* .mypy_cache .ruff_cache .pytest_cache .hypothesis
