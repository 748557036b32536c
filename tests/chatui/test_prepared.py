"""Prepared queries give what the queryset gives, each time anew."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import ApiKey, Membership, Organization, User
from agents.models import Agent
from chatui.prepared import PreparedQuery

members = PreparedQuery(
    lambda user, slug: Membership.objects.filter(user_id=user, organization__slug=slug).select_related("user"),
    UUID,
    str,
)


def test_it_gives_the_rows_of_its_parameters(alice: User, bob: User, charlie: User) -> None:
    assert [row.user for row in members(alice.pk, "acme")] == [alice]
    assert [row.user for row in members(bob.pk, "acme")] == [bob]
    assert members(charlie.pk, "acme") == []
    assert members.first(charlie.pk, "globex") == Membership.objects.get(user=charlie)
    assert members.first(uuid4(), "acme") is None


def test_its_rows_are_fresh_and_whole(alice: User) -> None:
    before = members.first(alice.pk, "acme")
    User.objects.filter(pk=alice.pk).update(first_name="Alicia")
    after = members.first(alice.pk, "acme")
    assert before is not None
    assert after is not None
    assert (before.user.first_name, after.user.first_name) == ("", "Alicia")
    with CaptureQueriesContext(
        connection,
    ) as queries:
        row = members.first(alice.pk, "acme")
        assert row is not None
        assert row.user.email == "alice@example.org"
    assert len(queries) == 1


def test_converted_columns_are_converted(organization: Organization, make_agent: Any) -> None:
    agents = PreparedQuery(
        lambda slug: Agent.objects.as_system().select_related("model__endpoint").filter(slug=slug), str
    )
    made = make_agent(organization, rules=[{"tool": "*", "do": "allow"}], endpoint={"headers": {"X-A": "b"}})
    for _ in range(2):
        found = agents.first("helper")
        assert found is not None
        assert found.pk == made.pk
        assert found.rules == [{"tool": "*", "do": "allow"}]
        assert (found.model.endpoint.api_key, found.model.endpoint.headers) == ("sk-test", {"X-A": "b"})


def test_values_and_prefetched_rows_come_as_of_any_queryset(alice: User, organization: Organization) -> None:
    names = PreparedQuery(lambda user: User.objects.filter(pk=user).values_list("username", flat=True), UUID)
    owners = PreparedQuery(lambda user: User.objects.filter(pk=user).prefetch_related("memberships"), UUID)
    pairs = PreparedQuery(lambda user: User.objects.filter(pk=user).values_list("username", "is_active"), UUID)
    rows = PreparedQuery(lambda user: User.objects.filter(pk=user).values("pk", "username"), UUID)
    assert names(alice.pk) == names(alice.pk) == ["alice"]
    assert pairs(alice.pk) == pairs(alice.pk) == [("alice", True)]
    assert rows(alice.pk) == rows(alice.pk) == [{"pk": alice.pk, "username": "alice"}]
    for _ in range(2):
        owner = owners.first(alice.pk)
        assert owner is not None
        assert [row.organization_id for row in owner.memberships.all()] == [organization.pk]


def test_a_moment_is_a_parameter_too(alice: User, organization: Organization) -> None:
    expired = PreparedQuery(lambda now: ApiKey.objects.filter(expires_at__lt=now), datetime)
    now = timezone.now()
    ApiKey.issue(organization_id=organization.pk, user=alice, name="old", expires_at=now)
    assert expired(now) == []
    assert [key.name for key in expired(now + timedelta(seconds=1))] == ["old"]


def test_a_parameter_that_is_used_twice_is_set_twice(alice: User, bob: User) -> None:
    from django.db.models import Q

    named = PreparedQuery(lambda name: User.objects.filter(Q(username=name) | Q(email=name)).order_by("username"), str)
    User.objects.filter(pk=bob.pk).update(email="alice")
    assert named("alice") == [alice, bob]
    assert named("nobody") == []


def test_what_watches_the_queries_may_change_them(alice: User) -> None:
    def none(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        return execute(f"{sql} LIMIT %s", (*params, 0), many, context)

    for _ in range(2):
        assert [row.user for row in members(alice.pk, "acme")] == [alice]
        with connection.execute_wrapper(none):
            assert members(alice.pk, "acme") == []


def test_other_parameters_than_announced_are_refused(db: None) -> None:
    for wrong in [(), ("acme",), (None, "acme"), ("acme", "acme"), (uuid4(), "acme", "x")]:
        with pytest.raises(TypeError):
            members(*wrong)


def test_a_parameter_that_the_query_changes_is_refused(db: None) -> None:
    containing = PreparedQuery(lambda name: User.objects.filter(username__contains=name), str)
    with pytest.raises(TypeError, match="does not reach"):
        containing("al")


@pytest.mark.django_db(transaction=True)
def test_threads_do_not_disturb_each_other(organization: Organization, make_member: Any) -> None:
    users = [make_member(f"user-{number}", organization) for number in range(6)]

    def ask(user: User) -> list[str]:
        try:
            return [row.user.username for _ in range(30) for row in members(user.pk, "acme")]
        finally:
            connection.close()

    with ThreadPoolExecutor(6) as threads:
        for user, found in zip(users, threads.map(ask, users), strict=True):
            assert found == [user.username] * 30
