# Every habit is a word. The environment is .venv in this folder; nothing else is touched.

PYTHON ?= python3
PORT ?= 8000
VENV := .venv
BIN := $(VENV)/bin
# What must hold on SQLite as on PostgreSQL: whatever writes turns, answers and lists.
SQLITE_TESTS := $(addprefix tests/conversations/,test_consumers.py test_tool_turns.py test_turns.py \
	test_elicitations.py test_approvals.py test_supervisor.py test_checkpoints.py test_retention.py api/test_turns.py)

LOWEST := var/lowest
LOWEST_TESTS := tests/agents tests/chatui tests/accounts tests/mcpservers/test_connection.py tests/conversations/test_consumers.py

.PHONY: demo test test-lowest soak real-servers lint types bench conformance docs clean

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "chatui needs Python 3.11 or newer.")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(VENV)/.installed  ## a running chat with a demo organization on http://127.0.0.1:$(PORT)
	$(BIN)/python -m demo --port $(PORT)

test: $(VENV)/.installed-dev  ## all tests, on PostgreSQL and Redis; then what must hold on SQLite too
	$(BIN)/python -m pytest -n auto --dist loadfile
	TEST_DATABASE=sqlite $(BIN)/python -m pytest -n auto --dist loadfile $(SQLITE_TESTS)

test-lowest:  ## those that touch other people's packages most, with the oldest releases that pyproject.toml allows
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(LOWEST)/bin/uv pip compile --quiet --resolution lowest-direct --extra production --python $(LOWEST)/bin/python \
		--output-file $(LOWEST)/oldest.txt pyproject.toml
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python --constraints $(LOWEST)/oldest.txt --editable '.[dev,production]'
	$(LOWEST)/bin/python -m pytest -p no:cacheprovider $(LOWEST_TESTS)

soak: $(VENV)/.installed-dev  ## two minutes of dying sockets, servers and processes under many callers
	SOAK_SECONDS=120 $(BIN)/python -m pytest tests/mcpservers/test_soak.py -s

real-servers: $(VENV)/.installed-dev  ## every tool of a dozen servers from npm and PyPI, repaired for each dialect
	REAL_SERVERS=1 $(BIN)/python -m pytest tests/mcpservers/test_many_real_servers.py -s

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/.installed-dev
	$(BIN)/mypy .

bench: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks

conformance: $(VENV)/.installed-dev  ## the official MCP suite's client scenarios; needs Node.js 20
	CONFORMANCE=whole $(BIN)/python -m pytest tests/conformance -q

docs: $(VENV)/.installed-dev  ## the documentation as pages, in var/docs
	$(BIN)/mkdocs build --quiet --strict

clean:
	rm -rf $(VENV) var
