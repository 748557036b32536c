"""Properties of placeholders, whatever templates and values there are: expanded once, never sent, never mixed up."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import UUID

import pytest
from hypothesis import HealthCheck, assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from mcpservers.errors import NotReadyError
from mcpservers.placeholders import in_header, in_text, in_url
from mcpservers.requests import RequestContext
from mcpservers.transports import target_of
from tests.fakes.mcp_server import Exchange, FakeMCPServer
from tests.fakes.mcp_targets import actor, definition, managed, stdio

NAMES = ("A", "TOKEN", "user.id", "request.turn_id", "organization.slug")
REFERENCES = ("${A}", "${SHARED}")
# Everything that could be taken for a placeholder, a back reference or a format.
TRICKY = st.sampled_from(
    [*(f"{{{{{name}}}}}" for name in NAMES), *REFERENCES, "{{", "}}", "{", "}", "${", "$", "\\1", "\\g<0>", "%s", "{0}"]
)
VALUES = st.lists(TRICKY | st.text("abcé{}$ ", min_size=1, max_size=4), min_size=1, max_size=5).map("".join)
KEYS = (*NAMES, *REFERENCES)
# A template is text without braces and dollars, with placeholders in between.
PIECES = st.lists(
    st.tuples(st.just("text"), st.text("abc :=/", max_size=5)) | st.tuples(st.just("key"), st.sampled_from(KEYS)),
    max_size=8,
)


def template_of(pieces: list[tuple[str, str]]) -> str:
    return "".join(piece if kind == "text" or piece.startswith("$") else f"{{{{{piece}}}}}" for kind, piece in pieces)


@given(PIECES, st.fixed_dictionaries(dict.fromkeys(KEYS, VALUES.filter(str.strip))))
def test_the_result_is_the_text_with_each_value_once_and_nothing_else(
    pieces: list[tuple[str, str]], values: dict[str, str]
) -> None:
    expected = "".join(piece if kind == "text" else values[piece] for kind, piece in pieces)
    assert in_text(template_of(pieces), values) == expected
    assert in_header(template_of(pieces), values) == expected.strip(" \t")


@given(
    PIECES,
    st.dictionaries(st.sampled_from(KEYS), VALUES | st.sampled_from(["", " ", "\t"])),
)
def test_what_is_unknown_or_blank_is_never_sent_in_any_form(
    pieces: list[tuple[str, str]], values: dict[str, str]
) -> None:
    used = {piece for kind, piece in pieces if kind == "key"}
    ready = all(values.get(name, "").strip() for name in used)
    for place in (in_text, in_header):
        if ready:
            place(template_of(pieces), values)
        else:
            with pytest.raises(NotReadyError):
                place(template_of(pieces), values)


@given(st.lists(TRICKY | st.text("ab", max_size=3), max_size=8).map("".join))
def test_any_template_without_values_is_refused_or_holds_no_placeholder(template: str) -> None:
    for place in (in_text, in_header):
        try:
            sent = place(template, {})
        except NotReadyError:
            continue
        assert "{{" not in sent
        assert "${" not in sent


@given(VALUES.filter(str.strip), VALUES.filter(str.strip))
def test_in_an_address_a_value_moves_nothing_and_comes_out_whole(first: str, second: str) -> None:
    assume(first.strip("."))
    sent = in_url("https://h.example:8443/a/{{A}}/b?x={{TOKEN}}&y=1", {"A": first, "TOKEN": second})
    parts = urlsplit(sent)
    assert (parts.scheme, parts.netloc, parts.fragment) == ("https", "h.example:8443", "")
    assert [unquote(part) for part in parts.path.split("/")] == ["", "a", first, "b"]
    names = [pair.partition("=") for pair in parts.query.split("&")]
    assert [(name, unquote(value)) for name, _, value in names] == [("x", second), ("y", "1")]


# --- N users × M servers × interleaved calls ----------------------------------------------------------------------

PLAN = st.lists(
    st.tuples(st.sampled_from(["alice", "bob", "carol"]), st.integers(0, 2), st.integers(0, 1)),
    min_size=6,
    max_size=24,
)


async def echo(exchange: Exchange) -> None:
    """Everything that the server was told about who calls."""
    told = {name: value for name, value in exchange.headers.items() if name.startswith("x-")}
    text = json.dumps({"path": exchange.path, "told": told, "asked": exchange.params["arguments"]["text"]})
    await exchange.result({"content": [{"type": "text", "text": text}]})


def own_values(name: str) -> dict[str, str]:
    """What this user entered: things that would be another's, or the operator's, if they were expanded."""
    return {"TOKEN": f"token-of-{name}-{{{{user.id}}}}-${{SHARED}}"}


@pytest.mark.parametrize("era", ["legacy", "modern"])
@hypothesis_settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plan=PLAN)
def test_nothing_of_one_user_is_ever_in_a_request_of_another(
    era: str, settings: Any, plan: list[tuple[str, int, int]]
) -> None:
    settings.MCP_ENVIRONMENT = {"SHARED": "operator-secret"}
    asyncio.run(_interleaved(era, plan))


async def _interleaved(era: str, plan: list[tuple[str, int, int]]) -> None:
    async with FakeMCPServer(era=era) as server, managed() as manager:
        server.on("tools/call", echo)
        headers = {"X-Token": "{{TOKEN}}", "X-Who": "{{user.username}}"}
        servers = [
            definition(server.url + "/{{user.username}}", headers=headers, variables={"TOKEN": {}}),
            definition(server.url, headers={"X-Who": "{{user.email}} {{user.id}}"}),
            definition(server.url, headers=headers | {"X-Turn": "{{request.turn_id}}"}, variables={"TOKEN": {}}),
        ]
        turns = {(name, number): RequestContext.of_trial() for name, _, number in plan}
        for request in turns.values():
            manager.open_run(request.run)

        async def call(number: int, name: str, which: int, turn: int) -> None:
            request = turns[name, turn]
            where = target_of(servers[which], actor(name), own_values(name), request=request)
            arguments = {"name": "echo", "arguments": {"text": f"{number}"}}
            async with manager.borrow(where) as connection:
                answer = await connection.request_raw("tools/call", arguments)
            seen = answer["content"][0]["text"]
            assert json.loads(seen)["asked"] == f"{number}"
            for other in {"alice", "bob", "carol"} - {name}:
                assert other not in seen
                assert str(actor(other).user_id) not in seen
            others = {str(each.turn_id) for key, each in turns.items() if key != (name, turn)}
            assert not others & set(re.findall(r"[0-9a-f-]{36}", seen))
            assert "operator-secret" not in seen
            assert (str(request.turn_id) in seen) == (which == 2)
            if which != 1:
                assert own_values(name)["TOKEN"] in json.loads(seen)["told"]["x-token"]

        await asyncio.gather(*(call(number, *step) for number, step in enumerate(plan)))


async def test_a_local_process_of_one_user_sees_nothing_of_another() -> None:
    async with managed() as manager:
        one = definition(
            transport="stdio",
            command=stdio().command,
            args=[*stdio().args, "--log", "{{TOKEN}}"],
            env={"WHO": "{{user.id}}", "KEY": "{{TOKEN}}"},
            variables={"TOKEN": {}},
        )

        async def environment(name: str) -> str:
            async with manager.borrow(target_of(one, actor(name), {"TOKEN": f"of-{name}"})) as connection:
                answer = await connection.request_raw("tools/call", {"name": "environment", "arguments": {}})
            return str(answer["content"][0]["text"])

        alice, bob = await asyncio.gather(environment("alice"), environment("bob"))
        assert json.loads(alice)["KEY"] == "of-alice"
        assert UUID(json.loads(bob)["WHO"]) == actor("bob").user_id
        assert "of-bob" not in alice
        assert "of-alice" not in bob
