"""The rules of the house: tenancy by construction, one guarded way out, small documented modules."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from uuid import uuid4

import pytest
from django.apps import apps
from django.db import models

from accounts.tenancy import TenantModel
from tests.architecture.code import ROOMS, ROOT, imported, nodes, sources


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


def test_ids_cannot_be_guessed() -> None:
    """A row's key is random, or that of the row that it belongs to."""
    guessable = set()
    for model in apps.get_models():
        key = model._meta.pk
        random = isinstance(key, models.UUIDField) and key.default is uuid4
        if model._meta.app_label in ROOMS and not random and not isinstance(key, models.OneToOneField):
            guessable.add(model._meta.label)
    assert guessable == {"agents.AgentServer"}, "a line of an agent's form, which no address names"


# Who may hold a client or a socket of its own: the guard, the places that build on its two builders, and those that
# listen, name this host or speak to the operator's own Redis.
_HTTP = frozenset({"httpx2"})
_BOTH = frozenset({"httpx2", "aiohttp"})
CLIENTS = frozenset(
    {
        *("httpx", "httpx2", "aiohttp", "requests", "urllib3", "httpcore", "websockets", "picows", "uvloop"),
        *("urllib.request", "http.client", "xmlrpc", "ftplib", "smtplib", "imaplib", "poplib", "telnetlib", "paramiko"),
        *("socket", "ssl", "socketserver", "asyncio.streams", "django.core.mail", "openai", "mcp.client", "mcp.Client"),
        *("redis", "psycopg"),
    }
)
MAY: dict[str, frozenset[str]] = {
    "chatui/netguard.py": _BOTH | {"socket", "ssl"},
    "chatui/netguard_aiohttp.py": frozenset({"aiohttp", "socket"}),
    "agents/providers/clients.py": _BOTH | {"openai"},
    "agents/providers/exchange.py": _BOTH | {"openai"},
    "mcpservers/causes.py": _HTTP,
    "mcpservers/clients.py": _HTTP | {"mcp.client", "mcp.Client"},
    "mcpservers/leanhttp.py": _HTTP,
    "mcpservers/mending.py": _HTTP,
    "mcpservers/oauth/proving.py": _HTTP,
    "mcpservers/oauth/web.py": _HTTP,
    "mcpservers/sessionhttp.py": _HTTP,
    "mcpservers/signing.py": _HTTP,
    "mcpservers/sse.py": _HTTP,
    "mcpservers/stdio.py": frozenset({"mcp.client"}),
    "mcpservers/peers.py": frozenset({"redis", "socket"}),  # its own Redis and the name of this host
    "conversations/feed_shared.py": frozenset({"redis"}),
    "conversations/supervisor.py": frozenset({"socket"}),  # the name of this host
    "chatui/checks.py": frozenset({"redis"}),
    "chatui/embedded.py": frozenset({"psycopg"}),  # holds a lock of its own database
    "chatui/layers.py": frozenset({"redis"}),
    "demo/endpoint.py": frozenset({"urllib.request"}),  # asks whether an Ollama answers on this machine
    "demo/model.py": frozenset({"aiohttp", "socket"}),  # a server
    "demo/notes/server.py": frozenset({"socket"}),  # a server
    "demo/running.py": frozenset({"socket"}),  # a server
}
# What opens a connection without a client: asyncio's own ways, and Django's way to send mail.
OPENERS = frozenset(
    {"open_connection", "create_connection", "open_unix_connection", "create_datagram_endpoint", "sock_connect"}
    | {"send_mail", "send_mass_mail", "mail_admins", "mail_managers"}
)
MAY_OPEN = {"chatui/netguard.py": {"sock_connect"}}


def held(path: str, module: ast.Module) -> Iterator[str]:
    """Each client that the module holds without being one that may."""
    for line, name in imported(module):
        of = next((client for client in CLIENTS if name == client or name.startswith(f"{client}.")), None)
        opens = name.rpartition(".")[2] in OPENERS
        if opens or (of is not None and of not in MAY.get(path, frozenset())):
            yield f"{path}:{line} {name}"
    for node in ast.walk(module):
        called = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if called in OPENERS and called not in MAY_OPEN.get(path, set()):
            yield f"{path}:{getattr(node, 'lineno', 0)} {called}"


def test_nothing_reaches_the_network_but_through_the_guard() -> None:
    assert not [offence for path, module in sources().items() for offence in held(path, module)]


def test_whoever_may_hold_a_client_still_does() -> None:
    for path, clients in MAY.items():
        names = {name for _, name in imported(sources()[path])}
        for client in clients:
            assert any(name == client or name.startswith(f"{client}.") for name in names), f"{path} {client}"


@pytest.mark.parametrize(
    "text",
    [
        "import socket",
        "import smtplib",
        "import urllib.request",
        "from urllib import request",
        "import http.client",
        "from http.client import HTTPSConnection",
        "import requests",
        "import httpx",
        "def f():\n    import httpx2",
        "from aiohttp import ClientSession",
        "import websockets.client",
        "from openai import AsyncOpenAI",
        "from mcp.client.streamable_http import streamable_http_client",
        "from mcp import Client",
        "from django.core.mail import send_mail",
        "import asyncio\nasyncio.open_connection('x', 1)",
        "from asyncio import open_connection",
        "loop.create_connection(f, 'x', 1)",
        "__import__('socket')",
        "await asyncio.to_thread(importlib.import_module, 'httpx2')",
    ],
)
def test_a_client_of_ones_own_is_seen(text: str) -> None:
    assert list(held("conversations/new.py", ast.parse(text)))


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


def test_everybody_is_told_through_the_one_place_that_does_without_redis() -> None:
    """A word to a group, or a channel that leaves one, may meet a Redis that is away."""
    senders = {
        path for path, node in nodes(ast.Attribute) if getattr(node, "attr", "") in ("group_send", "group_discard")
    }
    assert senders == {"chatui/layers.py"}


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


# Where something is looked for again and again, since nothing tells of it: other people's processes, and Redis.
MAY_SLEEP = {
    "tests/fakes/mcp_stdio.py": 1,  # it hangs, which is what it is for
    "tests/mcpservers/oauth/test_flow.py": 1,
    "tests/mcpservers/test_peers.py": 2,
    "tests/mcpservers/test_real_servers.py": 1,
    "tests/mcpservers/test_stdio.py": 1,
    "tests/whole/test_processes.py": 2,
}


def test_tests_do_not_sleep_but_where_a_loop_says_that_nothing_tells() -> None:
    found, counted = [], Counter[str]()
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
        name = str(path.relative_to(ROOT))
        counted[name] = len(reasoned)
        found += [f"{name}:{call.lineno}" for call in sleeps(tree) if call.lineno not in reasoned]
    assert not found
    assert +counted == Counter(MAY_SLEEP)


def test_no_pending_model_change_lacks_its_migration(db: None) -> None:
    from django.core.management import call_command

    call_command("makemigrations", "--check", "--dry-run", verbosity=0)


def test_no_unreasoned_exception_from_a_rule() -> None:
    """`type: ignore`, `noqa` and `no cover` carry their reason. Where no type checker reads, `type: ignore` is idle."""
    tracked = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=False)
    bare = []
    for name in tracked.stdout.split():
        unread = name.startswith(("tests/", "benchmarks/"))
        for number, line in enumerate((ROOT / name).read_text().splitlines(), 1):
            for mark in ("# type: ignore", "# noqa", "# pragma: no cover"):
                reasoned = re.search(r"#| - ", line.partition(mark)[2]) and not (unread and "type" in mark)
                if mark in line and not reasoned and "test_house" not in name:
                    bare.append(f"{name}:{number}")
    assert not bare


def test_a_test_that_is_left_out_or_known_to_fail_says_why() -> None:
    marks = re.compile(r"mark\.(?:skip|skipif|xfail)\b|pytest\.(?:skip|xfail)\(|importorskip")
    silent = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if marks.search(line) and not re.search(r"reason=|skip\((?:[\"'f]|message|NO_BROWSER|\{)|re\.compile", line)
    ]
    assert not silent


def test_a_test_that_may_take_longer_than_usual_says_why() -> None:
    silent = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.match(r"(?:@|pytestmark =).*mark\.deadline\(", line) and "#" not in line
    ]
    assert not silent
