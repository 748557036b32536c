from typing import Any

import pytest

from mcpservers.errors import NotReadyError
from mcpservers.scope import Scope
from mcpservers.transports import AppPrincipal, UserPrincipal, target_of
from tests.fakes.mcp_targets import GLOBEX, actor, definition, target

URL = "https://mcp.example.org/mcp"
TOKEN = {"headers": {"Authorization": "Bearer {{TOKEN}}"}, "variables": {"TOKEN": {"title": "Token"}}}


def test_a_target_of_app_scope_is_the_organizations() -> None:
    made = target(URL)
    assert made.scope is Scope.APP
    assert made.principal == AppPrincipal()
    assert made.user_id is None


def test_a_target_of_user_scope_holds_the_users_own_values() -> None:
    made = target(URL, **TOKEN, values={"TOKEN": "hunter22"})
    assert made.principal == UserPrincipal(actor().user_id)
    assert made.headers == (("Authorization", "Bearer hunter22"),)


def test_a_missing_variable_is_not_ready() -> None:
    with pytest.raises(NotReadyError, match="Set up first: Token"):
        target(URL, **TOKEN)


@pytest.mark.parametrize(
    "change",
    [
        {"url": URL + "/v2"},
        {"headers": {"X-A": "2"}},
        {"transport": "sse"},
        {"variables": {"A": {}}},
        {"oauth": {}},
    ],
)
def test_every_part_of_the_definition_is_part_of_the_key(change: dict[str, Any]) -> None:
    server = definition(URL, headers={"X-A": "1"})
    before = target_of(server, actor(), {"A": "a"}).key
    for name, value in change.items():
        setattr(server, name, value)
    assert target_of(server, actor(), {"A": "a"}).key != before


def test_what_changes_of_a_server_without_placeholders_holds_at_once() -> None:
    token = {"headers": {"Authorization": "Bearer first1"}}
    server, theirs = definition(URL, **token), definition(URL, **token, organization_id=GLOBEX)
    before = target_of(server, actor(), {})
    assert target_of(theirs, actor(), {}).key.slot != before.key.slot
    server.headers, server.title, server.timeout = {"Authorization": "Bearer second"}, "Two", 9
    after = target_of(server, actor(), {})
    assert (after.headers, after.title, after.timeout) == ((("Authorization", "Bearer second"),), "Two", 9)
    assert after.redact("first1 second") == "first1 •••"
    server.headers = {"Authorization": "Bearer first1"}
    again = target_of(server, actor(), {})
    assert (again.key, again.headers, again.secrets) == (before.key, before.headers, before.secrets)


def test_a_changed_value_of_the_operators_environment_holds_at_once(settings: Any) -> None:
    server = definition(URL, headers={"X-A": "${TEAM}"})
    for value in ("first1", "second"):
        settings.MCP_ENVIRONMENT = {"TEAM": value}
        made = target_of(server, actor(), {})
        assert (made.headers, made.redact(value)) == ((("X-A", value),), "•••")


@pytest.mark.parametrize("text", ["${", "{{", "{{user.id", "${TEAM"])
def test_a_placeholder_that_does_not_end_is_never_sent_as_it_is(text: str) -> None:
    for place in ({"headers": {"X-A": text}}, {"url": f"{URL}/{text}"}):
        server = definition(**({"url": URL} | place))
        for _ in range(2):
            with pytest.raises(NotReadyError):
                target_of(server, actor(), {})


def test_a_title_is_not_part_of_the_key() -> None:
    server = definition(URL)
    before = target_of(server, actor(), {})
    server.title, server.timeout = "Another", 9
    assert target_of(server, actor(), {}).key == before.key


def test_changed_values_of_a_user_are_another_key_in_the_same_slot() -> None:
    server = definition(URL, **TOKEN)
    one, two = (target_of(server, actor(), {"TOKEN": value}).key for value in ("first1", "second"))
    assert one != two
    assert one.slot == two.slot
    assert "first1" not in repr(one)


def test_two_users_and_two_organizations_never_share_a_slot() -> None:
    server = definition(URL, **TOKEN)
    values = {"TOKEN": "shared"}
    slots = {target_of(server, actor(name), values).key.slot for name in ("alice", "bob")}
    server.organization_id = GLOBEX
    slots.add(target_of(server, actor("bob", GLOBEX), values).key.slot)
    assert len(slots) == 3


def test_secrets_are_neither_in_the_repr_nor_in_redacted_text() -> None:
    headers = {"Authorization": "Bearer {{TOKEN}}", "X-Api-Key": "fixed-key-1", "X-Team": "blue-team"}
    made = target(URL, headers=headers, variables={"TOKEN": {}}, values={"TOKEN": "hunter22"})
    for secret in ("hunter22", "fixed-key-1"):
        assert secret not in repr(made)
        assert secret not in made.redact(f"401: the key {secret} of Bearer {secret} is wrong")
    assert made.redact("team blue-team") == "team blue-team"


def test_a_variable_that_is_not_sensitive_is_not_masked() -> None:
    made = target(URL, variables={"REGION": {"sensitive": False}}, values={"REGION": "eu-central"})
    assert made.redact("eu-central") == "eu-central"


@pytest.mark.parametrize("name", ["Host", "Content-Length", "transfer-encoding", "Connection", "Mcp-Session-Id"])
def test_headers_of_the_protocol_cannot_be_set(name: str) -> None:
    with pytest.raises(NotReadyError, match=name):
        target(URL, headers={name: "x"})


def test_a_local_process_gets_its_values_in_arguments_and_environment() -> None:
    made = target(
        transport="stdio",
        command="python",
        args=["-m", "x", "--user={{user.username}}"],
        env={"TOKEN": "{{TOKEN}}"},
        variables={"TOKEN": {}},
        values={"TOKEN": "hunter22"},
    )
    assert made.args == ("-m", "x", "--user=bob")
    assert made.env == (("TOKEN", "hunter22"),)
    assert (made.url, made.headers) == ("", ())


def test_a_placeholder_is_not_expanded_in_the_command() -> None:
    with pytest.raises(NotReadyError):
        target(transport="stdio", command="{{user.username}}")


def test_what_the_turn_would_have_to_supply_is_not_ready_without_one() -> None:
    with pytest.raises(NotReadyError, match="within a turn only"):
        target(URL, headers={"X-Turn": "{{request.turn_id}}"})
