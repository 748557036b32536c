"""The rules of the house: tenancy by construction, one guarded way out, small documented modules."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator

import pytest
from django.apps import apps

from accounts.tenancy import TenantModel
from tests.architecture.code import ROOT, imported, nodes, sources


def test_rows_of_a_tenant_are_reached_only_through_a_narrowing_or_a_stated_exception() -> None:
    tenants = {model.__name__ for model in apps.get_models() if issubclass(model, TenantModel)}
    assert "Conversation" in tenants
    allowed = {"visible_to", "create", "as_system"}
    offences = []
    for path, node in nodes(ast.Attribute):
        assert isinstance(node, ast.Attribute)
        inner = node.value
        if (
            isinstance(inner, ast.Attribute)
            and inner.attr == "objects"
            and isinstance(inner.value, ast.Name)
            and inner.value.id in tenants
            and node.attr not in allowed
        ):
            offences.append(f"{path}:{node.lineno} {inner.value.id}.objects.{node.attr}")
    assert not offences


# Who may hold an HTTP client or a socket of its own: the guard, and the places that build on its two builders.
CLIENTS = ("httpx2", "aiohttp", "requests", "urllib.request", "urllib3", "http.client", "websockets", "httpx")
MAY_IMPORT_CLIENTS = (
    "chatui/netguard.py",
    "chatui/netguard_aiohttp.py",
    "agents/providers/clients.py",
    "agents/providers/exchange.py",
    "agents/providers/failures.py",
    "mcpservers/causes.py",
    "mcpservers/clients.py",
    "mcpservers/leanhttp.py",
    "mcpservers/mending.py",
    "mcpservers/oauth/web.py",
    "mcpservers/sessionhttp.py",
    "mcpservers/signing.py",
    "mcpservers/sse.py",
)


def test_nothing_reaches_the_network_but_through_the_guard() -> None:
    offences = [
        f"{path}:{line} {name}"
        for path, module in sources().items()
        if path not in MAY_IMPORT_CLIENTS and not path.startswith("demo/")
        for line, name in imported(module)
        if any(name == client or name.startswith(client + ".") for client in CLIENTS)
    ]
    assert not offences


def test_whoever_builds_a_client_builds_it_on_the_guard() -> None:
    """A client class is called only where the module also imports the guard."""
    makers = {"AsyncClient", "Client", "ClientSession", "AsyncHTTPTransport", "HTTPTransport", "TCPConnector"}
    for path, node in nodes(ast.Call):
        assert isinstance(node, ast.Call)
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        owner = getattr(getattr(node.func, "value", None), "id", "")
        if called in makers and owner in ("httpx2", "aiohttp"):
            names = {name for _, name in imported(sources()[path])}
            on_ours = "mcpservers.sessionhttp" in names and any(word.arg == "transport" for word in node.keywords)
            guarded = path.startswith("chatui/netguard") or any("netguard" in name for name in names) or on_ours
            assert guarded or path.startswith("demo/"), f"{path}:{node.lineno}"


def test_the_environment_is_read_in_the_settings_alone() -> None:
    may = {"chatui/settings.py", "chatui/asgi.py", "chatui/celery.py"}
    offences = [
        f"{path}:{node.lineno}"
        for path, node in nodes(ast.Attribute)
        if isinstance(node, ast.Attribute)
        and node.attr in ("environ", "getenv")
        and getattr(node.value, "id", "") == "os"
        and path not in may
        and not path.startswith("conversations/configuration/")  # it reads the operator's ${NAME}s
        and not path.startswith("demo/")
    ]
    assert not offences


@pytest.mark.parametrize("path", sorted(sources()))
def test_every_module_says_in_one_sentence_what_it_is(path: str) -> None:
    assert ast.get_docstring(sources()[path])


def test_no_room_has_become_a_hall() -> None:
    long = {path: len((ROOT / path).read_text().splitlines()) for path in sources()}
    assert {path: length for path, length in long.items() if length > 450} == {}


def test_no_drawer_modules() -> None:
    drawers = {"services.py", "utils.py", "helpers.py", "core.py", "misc.py", "common.py"}
    assert not [path for path in sources() if path.rsplit("/", 1)[-1] in drawers]


def sleeps(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            zero = node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0
            if name == "sleep" and not zero:
                yield node


def test_tests_do_not_sleep_but_where_a_loop_says_that_nothing_tells() -> None:
    found = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        lines = path.read_text().splitlines()
        tree = ast.parse("\n".join(lines))
        reasoned = {
            call.lineno
            for loop in ast.walk(tree)
            if isinstance(loop, ast.While)
            for call in sleeps(loop)
            if "#" in lines[loop.lineno - 1] or "#" in lines[call.lineno - 1]
        }
        found += [f"{path.relative_to(ROOT)}:{call.lineno}" for call in sleeps(tree) if call.lineno not in reasoned]
    assert not found


def test_no_pending_model_change_lacks_its_migration(db: None) -> None:
    from django.core.management import call_command

    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


def test_no_unreasoned_exception_from_a_rule() -> None:
    """`type: ignore`, `noqa` and `no cover` carry their reason. The type checker does not read the tests."""
    tracked = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=False)
    bare = []
    for name in tracked.stdout.split():
        marks = ("# noqa",) if name.startswith("tests/") else ("# type: ignore", "# noqa", "# pragma: no cover")
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1):
            for mark in marks:
                if mark in line and not re.search(r"#| - ", line.split(mark, 1)[1]) and "test_house" not in name:
                    bare.append(f"{name}:{number}")
    assert not bare
