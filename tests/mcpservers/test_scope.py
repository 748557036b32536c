from typing import Any

import pytest

from mcpservers.scope import Scope, scope_of

SERVER: dict[str, Any] = {"transport": "http", "url": "https://a.example/mcp", "variables": {}, "oauth": None}


def scope(**parts: Any) -> Scope:
    return scope_of(SERVER | parts).scope


def test_what_depends_on_nobody_is_shared_by_the_organization() -> None:
    assert scope() is Scope.APP
    assert scope(headers={"Authorization": "Bearer fixed"}) is Scope.APP


def test_the_organizations_own_slug_keeps_it_shared_within_the_organization() -> None:
    assert scope(headers={"X-Tenant": "{{organization.slug}}"}) is Scope.APP


@pytest.mark.parametrize(
    "parts",
    [
        {"variables": {"TOKEN": {}}},
        {"headers": {"Authorization": "Bearer {{TOKEN}}"}},
        {"headers": {"X-User": "{{user.email}}"}},
        {"url": "https://a.example/{{ user.id }}/mcp"},
        {"env": {"NAME": "{{user.name}}"}},
        {"args": ["--token", "{{TOKEN}}"]},
        {"headers": {"Authorization": "Bearer {{openid.access_token}}"}},
        {"headers": {"Authorization": "Bearer {{obo.access_token}}"}},
        {"oauth": {}},
        {"oauth": {"client_id": "x"}},
        {"oauth": {"obo": {"audience": "x"}}},
    ],
)
def test_what_depends_on_the_user_is_each_users_own(parts: dict[str, Any]) -> None:
    assert scope(**parts) is Scope.USER


def test_an_account_of_the_organization_is_shared_unless_something_else_is_the_users() -> None:
    machine = {"grant": "client_credentials", "client_id": "x", "client_secret": "hunter2"}
    workload = {"grant": "jwt-bearer", "client_id": "x", "assertion": "hunter2"}
    assert scope(oauth=workload) is Scope.APP
    verdict = scope_of(SERVER | {"oauth": machine})
    assert verdict.scope is Scope.APP
    assert "account of the organization" in verdict.reason
    assert scope(oauth=machine, headers={"X-User": "{{user.id}}"}) is Scope.USER
    assert scope(oauth=machine, variables={"TOKEN": {}}) is Scope.USER


def test_what_depends_on_the_turn_is_the_turns_even_if_it_depends_on_the_user_too() -> None:
    headers = {"X-User": "{{user.id}}", "X-Turn": "{{request.turn_id}}"}
    assert scope(headers=headers, oauth={}, variables={"TOKEN": {}}) is Scope.REQUEST


def test_the_reason_names_the_field_and_never_a_value() -> None:
    verdict = scope_of(SERVER | {"headers": {"Authorization": "Bearer hunter2 {{user.id}}"}})
    assert "headers" in verdict.reason
    assert "{{user.id}}" in verdict.reason
    assert "hunter2" not in verdict.reason


def test_a_definition_without_these_keys_is_shared() -> None:
    assert scope_of({}).scope is Scope.APP
