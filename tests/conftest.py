"""What every test may use: Alice owns, Bob is her colleague, Charlie belongs to somebody else; factories for the rest.

Tests that cross threads (anything async that touches rows) use `transactional_db`; pure ones need no database.
"""

from __future__ import annotations

import asyncio
import functools
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg_pool  # noqa: F401  # as said at the clock
import pytest
from django.db import DatabaseError, connection, transaction
from django.test import TransactionTestCase

from accounts import audit_guard
from accounts.actors import Actor, find_actor
from accounts.models import Membership, Organization, Role, User
from agents.models import Agent, AgentGrant, AgentServer, ModelEndpoint, ModelProfile

DEADLINE = 120.0  # seconds; a test that waits longer hangs, however loaded the machine is
LIMIT = pytest.StashKey[asyncio.Timeout]()


@pytest.fixture
def deadline() -> float:
    return DEADLINE


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    """Every asynchronous test ends with a deadline, whatever it waits for."""
    function = item.obj if isinstance(item, pytest.Function) else None
    if asyncio.iscoroutinefunction(function) and not getattr(function, "_has_deadline", False):
        seconds = max([DEADLINE, *(mark.args[0] for mark in item.iter_markers("deadline"))])

        @functools.wraps(function)
        async def bounded(*args: Any, **kwargs: Any) -> Any:
            async with asyncio.timeout(seconds) as item.stash[LIMIT]:
                return await function(*args, **kwargs)

        bounded._has_deadline = True
        item.obj = bounded  # before pytest-asyncio wraps it, which it does when the item runs
    return (yield)


# Whoever waits in a thread does so by the clock of before: the pool of the database imported it above.
_monotonic, _moved = time.monotonic, [0.0]
time.monotonic = lambda: _monotonic() + _moved[0]


@pytest.fixture
def ahead(request: pytest.FixtureRequest) -> Callable[[float], None]:
    """Sets the monotonic clock, which is the loop's too, ahead by so many seconds: timers are due without a wait.

    The test's own deadline moves along. The product's limits have to be long (a minute), or a slow machine reaches
    them by itself. The clock is never set back: what bears its time would lie in the future.
    """

    def move(seconds: float) -> None:
        _moved[0] += seconds
        limit = request.node.stash[LIMIT]
        limit.reschedule(limit.when() + seconds)

    return move


# What may be left out where everything is installed, by its reason: what another command runs, and what cannot be.
MAY_SKIP = ("installs a dozen servers: make real-servers", "root may write everywhere")


def must_run(reason: str) -> bool:
    """Whether in CI a test that was skipped for this reason has failed: there nothing is missing."""
    of_this_database = connection.vendor == "sqlite" and "SQLite" in reason
    return bool(os.environ.get("CI")) and reason not in MAY_SKIP and not of_this_database


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report: pytest.TestReport = yield
    if report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if must_run(reason):
            report.outcome, report.longrepr = "failed", f"skipped where nothing may be missing: {reason}"
    return report


@pytest.fixture
def organization(db: None) -> Organization:
    return Organization.objects.create(slug="acme", name="Acme")


@pytest.fixture
def other_organization(db: None) -> Organization:
    return Organization.objects.create(slug="globex", name="Globex")


@pytest.fixture
def make_member(db: None) -> Callable[..., User]:
    def make(username: str, organization: Organization, role: Role = Role.MEMBER, **fields: Any) -> User:
        user = User.objects.create_user(username, f"{username}@example.org", "correct horse", **fields)
        Membership.objects.create(user=user, organization=organization, role=role)
        return user

    return make


@pytest.fixture
def alice(organization: Organization, make_member: Callable[..., User]) -> User:
    return make_member("alice", organization, Role.OWNER)


@pytest.fixture
def bob(organization: Organization, make_member: Callable[..., User]) -> User:
    return make_member("bob", organization, Role.MEMBER)


@pytest.fixture
def charlie(other_organization: Organization, make_member: Callable[..., User]) -> User:
    return make_member("charlie", other_organization, Role.OWNER)


@pytest.fixture
def actor_of() -> Callable[[User], Actor]:
    """The actor of a user in the only organization that the user is a member of."""

    def find(user: User) -> Actor:
        actor = find_actor(user.pk, Membership.objects.get(user=user).organization_id)
        assert actor is not None
        return actor

    return find


@pytest.fixture(autouse=True)
def _media(settings: Any, tmp_path: Any) -> None:
    settings.MEDIA_ROOT = str(tmp_path / "media")


@pytest.fixture
def make_agent(db: None) -> Callable[..., Agent]:
    """An agent on an endpoint at `base_url`, granted to its whole organization."""

    def make(
        organization: Organization, slug: str = "helper", base_url: str = "http://127.0.0.1:9/v1", **fields: Any
    ) -> Agent:
        profile_fields = fields.pop("profile", {})
        endpoint_fields = fields.pop("endpoint", {})
        servers = fields.pop("servers", ())
        granted = fields.pop("granted", True)
        endpoint = ModelEndpoint.objects.create(
            organization=organization, slug=f"{slug}-endpoint", base_url=base_url, api_key="sk-test", **endpoint_fields
        )
        profile = ModelProfile.objects.create(
            organization=organization, endpoint=endpoint, slug="gpt", name="test-model", **profile_fields
        )
        agent = Agent.objects.create(organization=organization, slug=slug, name=slug.title(), model=profile, **fields)
        for server in servers:
            AgentServer.objects.create(agent=agent, server=server)
        if granted:
            AgentGrant.objects.create(agent=agent, whole_organization=True)
        return agent

    return make


@pytest.fixture(scope="session", autouse=True)
def _no_session_outlives_the_tests(django_db_setup: None) -> Iterator[None]:
    """Before the test database is dropped, end what threads of the tests' own async queries still hold open."""
    yield
    if connection.vendor == "postgresql":
        import psycopg

        names = ("dbname", "host", "port", "user", "password")
        parameters = {name: value for name, value in connection.get_connection_params().items() if name in names}
        connection.close()
        connection.close_pool()
        with psycopg.connect(**parameters, autocommit=True) as session:
            session.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )


# What Django itself fills after migrating stays: filling it again is most of what its own emptying costs.
_KEPT = frozenset({"django_content_type", "auth_permission", "django_migrations", "django_site"})


@functools.cache
def _tables() -> list[str]:
    return sorted(set(connection.introspection.django_table_names(only_existing=True, include_views=False)) - _KEPT)


def _empty_tables(self: TransactionTestCase, attempts: int = 5) -> None:
    """Delete the rows of the tables that have any, after a test that committed.

    A thread of the product may still be writing what nobody waits for; the writer is done a moment later.
    """
    quote = connection.ops.quote_name
    looks = " UNION ALL ".join(f"SELECT '{table}' WHERE EXISTS (SELECT 1 FROM {quote(table)})" for table in _tables())
    for attempt in range(attempts):
        try:
            with audit_guard.opened("retention"), transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(looks)  # each time: that thread may have filled another table meanwhile
                for (table,) in cursor.fetchall():
                    cursor.execute(f"DELETE FROM {quote(table)}")
            return
        except DatabaseError:
            if attempt == attempts - 1:
                raise


TransactionTestCase._fixture_teardown = _empty_tables
