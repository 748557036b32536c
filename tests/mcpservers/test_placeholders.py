from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounts.actors import Actor
from accounts.models import Role
from mcpservers.errors import NotReadyError
from mcpservers.placeholders import (
    in_header,
    in_text,
    in_url,
    missing_variables,
    names_in,
    require_variables,
    values_for,
)

BOB = Actor(
    user_id=UUID(int=7),
    organization_id=UUID(int=1),
    role=Role.MEMBER,
    username="bob",
    email="bob@example.org",
    name="Bob Bauer",
    organization_slug="acme",
)
DECLARED = {"TOKEN": {"title": "Personal token"}, "REGION": {}}


def test_each_namespace_has_its_values() -> None:
    values = values_for(BOB, DECLARED, {"TOKEN": "t", "REGION": "eu"})
    template = "{{TOKEN}} {{ REGION }} {{user.id}} {{user.username}} {{user.email}} {{user.name}} {{organization.slug}}"
    expected = f"t eu {BOB.user_id} bob bob@example.org Bob Bauer acme"
    assert in_text(template, values) == in_header(template, values) == expected


def test_a_user_without_a_full_name_is_called_by_the_username() -> None:
    nameless = Actor(user_id=BOB.user_id, organization_id=BOB.organization_id, role=Role.MEMBER, username="bob")
    assert in_text("{{user.name}}", values_for(nameless, {}, {})) == "bob"


@pytest.mark.parametrize("template", ["{{UNKNOWN}}", "{{user.password}}", "{{user.__class__}}", "{{}}", "{{7*7}}"])
def test_an_unknown_placeholder_is_not_ready_and_never_sent(template: str) -> None:
    for place in (in_text, in_header):
        with pytest.raises(NotReadyError, match="stands for nothing"):
            place(template, values_for(BOB, DECLARED, {"TOKEN": "t", "REGION": "eu"}))


@pytest.mark.parametrize("template", ["{{TOKEN", "{{ TOKEN }", "a {{{", "{{a{b}}"])
def test_a_placeholder_that_does_not_end_is_not_ready_and_never_sent(template: str) -> None:
    for place in (in_text, in_header):
        with pytest.raises(NotReadyError, match="does not end"):
            place(template, {"TOKEN": "t", "b": "x"})


def test_braces_of_json_are_text() -> None:
    assert in_header('{"a":{"b":{{TOKEN}}}} {x} {{{TOKEN}}}', {"TOKEN": "1"}) == '{"a":{"b":1}} {x} {1}'


@pytest.mark.parametrize("value", ["", "   ", "\t"])
def test_a_blank_value_is_a_missing_one(value: str) -> None:
    with pytest.raises(NotReadyError) as caught:
        in_header("Bearer {{TOKEN}}", {"TOKEN": value})
    assert caught.value.missing == ("TOKEN",)
    assert missing_variables(DECLARED, {"TOKEN": value, "REGION": "eu"}) == ("TOKEN",)


def test_missing_variables_are_all_named_by_their_titles() -> None:
    with pytest.raises(NotReadyError, match="Personal token, REGION") as caught:
        require_variables(DECLARED, {})
    assert caught.value.missing == ("TOKEN", "REGION")
    require_variables(DECLARED, {"TOKEN": "a", "REGION": "b"})


def test_a_users_value_cannot_take_the_place_of_a_builtin() -> None:
    values = values_for(BOB, {"user.id": {}}, {"user.id": "another"})
    assert values["user.id"] == str(BOB.user_id)


@given(st.text(alphabet=st.characters(codec="latin-1", exclude_categories=["Cc"]), min_size=1).filter(str.strip))
def test_a_value_is_never_expanded_again(value: str) -> None:
    inner = "{{OTHER}}" + value + "${HOME}\\1\\g<0>%s"
    assert in_text("<{{TOKEN}}>", {"TOKEN": inner, "OTHER": "secret"}) == f"<{inner}>"


def test_a_placeholder_that_two_values_form_together_is_text() -> None:
    assert in_text("{{A}}{{B}}", {"A": "{{", "B": "C}}", "C": "secret"}) == "{{C}}"


def test_what_the_operator_does_not_list_is_neither_expanded_nor_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME_OF_US", "secret")
    for template in ("${HOME_OF_US}", "a ${HOME_OF_US} b", "${", "${{{TOKEN}}}", "${ HOME_OF_US"):
        for place in (in_text, in_header):
            with pytest.raises(NotReadyError, match=r"\$\{.*stands for nothing"):
                place(template, values_for(BOB, DECLARED, {"TOKEN": "HOME_OF_US", "REGION": "eu"}))


def test_what_the_operator_lists_is_expanded_in_a_definition_and_never_in_a_value(settings: Any) -> None:
    settings.MCP_ENVIRONMENT = {"SHARED": "top secret"}
    values = values_for(BOB, DECLARED, {"TOKEN": "${SHARED}", "REGION": "eu"})
    assert in_header("${SHARED} {{TOKEN}}", values) == "top secret ${SHARED}"
    assert in_url("https://h/${SHARED}?q={{TOKEN}}", values) == "https://h/top%20secret?q=%24%7BSHARED%7D"
    with pytest.raises(NotReadyError):
        in_url("https://${SHARED}.example/", values)


def test_a_variable_cannot_take_the_place_of_the_operators(settings: Any) -> None:
    settings.MCP_ENVIRONMENT = {"SHARED": "theirs"}
    assert values_for(BOB, {"${SHARED}": {}}, {"${SHARED}": "mine"})["${SHARED}"] == "theirs"


# --- Headers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["a\r\nX-Evil: 1", "a\nb", "a\rb", "a\0b", "a\x1bb", "a\x7fb"])
def test_a_value_that_would_break_out_of_its_header_is_refused(value: str) -> None:
    with pytest.raises(NotReadyError, match="control character"):
        in_header("Bearer {{TOKEN}}", {"TOKEN": value})


def test_a_name_beyond_latin_1_is_sent_in_base64_and_the_rest_of_the_header_stays() -> None:
    assert in_header("n={{user.name}};x", {"user.name": "Žofie Éöß 林"}) == "n=b64:xb1vZmllIMOJw7bDnyDmnpc=;x"
    assert in_header("{{user.name}}", {"user.name": "Éöß"}) == "Éöß"


def test_text_of_the_definition_beyond_latin_1_is_refused() -> None:
    with pytest.raises(NotReadyError):
        in_header("林 {{A}}", {"A": "a"})


def test_white_space_around_a_header_is_dropped() -> None:
    assert in_header("  {{A}}\t", {"A": " a "}) == "a"


def test_nul_cannot_reach_a_process() -> None:
    with pytest.raises(NotReadyError):
        in_text("{{A}}", {"A": "a\0b"})


# --- Addresses ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "https://{{A}}/mcp",
        "{{A}}://host/mcp",
        "https://host:{{A}}/",
        "https://{{A}}.example.org",
        "https://u:{{A}}@host/",
        "{{A}}",
        "host/{{A}}",
    ],
)
def test_a_placeholder_in_scheme_host_or_port_is_refused(url: str) -> None:
    with pytest.raises(NotReadyError):
        in_url(url, {"A": "evil.example"})


def test_a_value_stays_within_its_place_in_the_address() -> None:
    values = {"A": "../x?y#z&w=1 %", "B": "a&b=c"}
    assert in_url("https://h/{{A}}/m?q={{B}}", values) == "https://h/..%2Fx%3Fy%23z%26w%3D1%20%25/m?q=a%26b%3Dc"


@pytest.mark.parametrize("value", [".", ".."])
def test_a_value_cannot_climb_the_path(value: str) -> None:
    with pytest.raises(NotReadyError):
        in_url("https://h/a/{{A}}/b", {"A": value})
    assert in_url("https://h/a?b={{A}}", {"A": value}) == f"https://h/a?b={value}"


def test_names_are_found_in_order_with_repeats() -> None:
    assert names_in("{{A}} {{ user.id }}{{A}} {x} {{{B}}}") == ["A", "user.id", "A", "B"]
