# Each target makes the environment it needs from pyproject.toml and makes it anew when that file changes.
# Nothing is installed outside the repository except, for `make test`, missing servers (see scripts/servers).

PYTEST_ARGS ?= -n 3 --dist loadfile --no-loadscope-reorder
DEMO_ARGS ?=
AUDIT_ARGS ?=
BENCH_ARGS ?=
FUZZ_ARGS ?=
CHAOS_ARGS ?=

# Where an interpreter may not write down what it compiled, each of hundreds of processes compiles everything anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test lint format docs site audit sbom bench chaos fuzz clean

help: ## Show what can be made
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 16

demo: .venv-demo/made ## Run the payments demo on http://127.0.0.1:8000
	.venv-demo/bin/twicesafe demo $(DEMO_ARGS)

test: .venv/made ## Run every test, on real servers (PYTEST_ARGS="tests/core -x" for some of them)
	scripts/servers postgresql pgbouncer redis-server mariadb-server rabbitmq-server nats-server chromium nodejs npm prometheus \
		gcc libc6-dev
	for folder in tests/dashboard/axe tests/gateway/express tests/js/types; do \
		npm install --prefix $$folder --no-package-lock --no-audit --no-fund --loglevel error || exit; \
	done
	.venv/bin/pytest $(PYTEST_ARGS)

lint: .venv/made ## Check style, formatting and types
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy

format: .venv/made ## Mend what can be mended without a human
	.venv/bin/ruff check --fix .
	.venv/bin/ruff format .

docs: .venv/made ## Make the tables and the picture that come from the code
	.venv/bin/python scripts/make_state_diagram.py
	.venv/bin/python scripts/make_tables.py
	.venv/bin/python -m scripts.make_commands
	.venv/bin/python -m scripts.make_gallery

site: .venv/made ## Build the documentation into build/site; whatever its builder complains of is an error
	.venv/bin/python scripts/make_reference.py
	.venv/bin/python -m sphinx -W --keep-going -q -j 2 -c docs -d build/doctrees . build/site
	cp build/site/README.html build/site/index.html
	@echo "build/site/index.html"

audit: .venv-security/made .venv-extras/made ## Ask OSV, an advisory database, about what all extras install (needs the network)
	.venv-security/bin/python scripts/audit.py $(AUDIT_ARGS) \
		"$$(.venv-extras/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"

sbom: .venv-security/made .venv-extras/made ## Write what all extras install into build/sbom.json, as CycloneDX
	mkdir -p build
	.venv-security/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type library --output-reproducible \
		--output-file build/sbom.json .venv-extras/bin/python
	@echo "build/sbom.json"

bench: benchmarks/.venv/made ## Measure twicesafe against its floor and its peers, and write docs/benchmarks.md
	scripts/servers postgresql mariadb-server redis-server wrk
	benchmarks/.venv/bin/python -m benchmarks $(BENCH_ARGS)

chaos: .venv/made ## Cut networks, fill disks, move clocks, kill processes, and count effects (CHAOS_ARGS="--help")
	scripts/servers postgresql mariadb-server redis-server iproute2 iptables e2fsprogs gcc libc6-dev
	.venv/bin/python -m twicesafe.storm.chaos $(CHAOS_ARGS)

fuzz: .venv-fuzz/made ## Follow what must always hold for five minutes, from a seed that is printed
	.venv-fuzz/bin/python -m tests.fuzz $(FUZZ_ARGS)

clean: ## Remove every environment and everything generated
	rm -rf .venv .venv-demo .venv-extras .venv-security .venv-fuzz benchmarks/.venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/made: pyproject.toml scripts/environment
	scripts/environment .venv --group lint --group test --group docs --editable .

.venv-demo/made: pyproject.toml scripts/environment
	scripts/environment .venv-demo --editable '.[demo]'

.venv-security/made: pyproject.toml scripts/environment
	scripts/environment .venv-security --group security

# As users have it: every extra, and nothing of the tests.
.venv-extras/made: pyproject.toml scripts/environment .venv-security/made
	scripts/environment .venv-extras --editable ".[$$(.venv-security/bin/python -c \
		'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"], sep=",")')]"

.venv-fuzz/made: pyproject.toml scripts/environment
	scripts/environment .venv-fuzz --group fuzz --editable .

benchmarks/.venv/made: pyproject.toml scripts/environment
	scripts/environment benchmarks/.venv --group bench --editable .
