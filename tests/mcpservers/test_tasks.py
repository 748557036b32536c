"""Celery's tasks of this app run without a broker."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.utils import timezone

from accounts.models import Organization, User
from mcpservers import tasks
from mcpservers.models import LinkedAccount, MCPServer, OAuthClient
from tests.fakes.authserver import FakeAuthServer, serving


@pytest.mark.django_db(transaction=True)
def test_renewing_tokens_with_nothing_to_renew_is_done_at_once() -> None:
    tasks.refresh_tokens()


@pytest.mark.django_db(transaction=True)
def test_a_token_that_is_due_is_renewed_by_the_task(organization: Organization, bob: User) -> None:
    with serving(FakeAuthServer()) as auth:
        issued = {"client_id": "preset", "person": auth.people[0], "scopes": ("notes:read",)}
        auth.configure("preset", "s")
        access, refresh = (auth.memory.issue(kind, seconds=60, family="f", **issued) for kind in ("access", "refresh"))
        server = MCPServer.objects.create(
            organization=organization,
            slug="notes",
            title="Notes",
            url=f"{auth.origin}/mcp",
            oauth={"client_id": "preset", "client_secret": "s"},
        )
        client = OAuthClient.objects.create(
            organization=organization,
            server=server,
            issuer=auth.issuer,
            source="configured",
            client_id="preset",
            auth_method="client_secret_basic",
        )
        account = LinkedAccount.objects.create(
            organization=organization,
            server=server,
            user=bob,
            binding=server.oauth_binding(),
            issuer=auth.issuer,
            client=client,
            name="ada",
            tokens={"access_token": access.value, "refresh_token": refresh.value},
            refresh_at=timezone.now(),
            last_used_at=timezone.now(),
        )
        tasks.refresh_tokens.apply().get()
        account.refresh_from_db()
        assert (account.state, account.last_error, account.version) == ("ready", "", 2)
        assert account.tokens["access_token"] != access.value
        assert auth.valid(account.tokens["access_token"]) is not None
        assert refresh.spent


def test_tokens_are_looked_at_more_often_than_they_are_due_ahead() -> None:
    from mcpservers.oauth.grants import AHEAD_SECONDS

    (entry,) = [each for each in settings.CELERY_BEAT_SCHEDULE.values() if each["task"] == tasks.refresh_tokens.name]
    assert entry["schedule"] < AHEAD_SECONDS / 2
