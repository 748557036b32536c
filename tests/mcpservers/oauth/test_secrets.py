"""No token, secret, code or verifier in a log line, an error, an audit entry or a column in clear."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from aiohttp import web
from django.apps import apps
from django.db import connection
from django.utils import timezone

from accounts.actors import Actor
from accounts.models import AuditRecord
from chatui.errors import ChatUIError
from chatui.rows import in_rows
from mcpservers.models import LinkAttempt, LinkedAccount, MCPServer
from mcpservers.oauth import accounts, flow
from tests.fakes import authfaults
from tests.fakes.authpages import consent, query_of
from tests.fakes.authserver import FakeAuthServer, Heard
from tests.mcpservers.oauth.conftest import BROWSER, Link, Make, tokens_of
from tests.mcpservers.oauth.resource import Resource

SECRET = "canary-secret"


def columns() -> str:
    """Everything that the tables of servers and of the audit hold, as it stands there."""
    found: list[Any] = []
    with connection.cursor() as cursor:
        for model in [*apps.get_app_config("mcpservers").get_models(), AuditRecord]:
            cursor.execute(f'SELECT * FROM "{model._meta.db_table}"')
            found += cursor.fetchall()
    return json.dumps(found, default=str)


def _repeating(name: str) -> Any:
    """A refusal that repeats what was sent."""

    async def answer(heard: Heard) -> web.StreamResponse:
        sent = heard.form.get(name) or SECRET
        return web.json_response({"error": "invalid_grant", "error_description": f"you sent {sent}"}, status=400)

    return answer


async def test_nothing_secret_stands_in_a_log_an_error_or_a_column(
    link: Link, make_server: Make, auth: FakeAuthServer, resource: Resource, actor: Actor, caplog: Any
) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.INFO, logger="httpcore2")  # the headers of answers: of the browser's part here
    errors: list[ChatUIError] = []
    secrets = [BROWSER, SECRET]
    auth.configure("preset", SECRET)
    auth.dpop, resource.challenge = True, "DPoP"
    oauth = {"client_id": "preset", "client_secret": SECRET, "scopes": ["openid", "notes:read"]}
    server = await make_server(resource.url, oauth=oauth)
    account = await link(server)
    await tokens_of(account).renewed(account.tokens["access_token"])
    for name in ("code", "code_verifier", "client_secret"):
        auth.on("token", _repeating(name))
        begun = await flow.begin(actor, server.pk, browser=BROWSER)
        attempt = await LinkAttempt.objects.as_system().alatest("created_at")
        query = query_of(await consent(begun.url))
        with pytest.raises(ChatUIError) as raised:
            await flow.complete(actor.user_id, query, browser=BROWSER)
        errors.append(raised.value)
        secrets += [attempt.verifier, query["state"]]
    begun = await flow.begin(actor, server.pk, browser=BROWSER)
    row = await LinkedAccount.objects.as_system().aget(pk=account.pk)
    auth.on("token", authfaults.said({"error": "no", "error_description": row.tokens["refresh_token"]}, 400))
    await LinkedAccount.objects.as_system().aupdate(expires_at=timezone.now(), renewed_at=None)
    with pytest.raises(ChatUIError) as raised:
        await tokens_of(account).current()
    errors.append(raised.value)

    issued = [token.value for token in auth.memory.tokens.values()]
    keys = [account.tokens["dpop_key"], row.tokens["dpop_key"]]
    secrets += issued + [line for key in keys for line in key.splitlines()[1:-1]]
    shown = " ".join(
        [caplog.text, await in_rows(columns), repr(account), repr(row), repr(tokens_of(account)), repr(begun)]
        + [f"{error} {error!r} {error.public_message} {vars(error)}" for error in errors]
        + [repr(await accounts.disconnect(actor, account.pk))]
    )
    # The address that `begin` gives holds its own state, which is meant for the browser; it is another one.
    assert [secret for secret in secrets if secret in shown and secret not in begun.url] == []


async def test_what_is_stored_can_be_moved_to_another_key(
    link: Link, server: MCPServer, auth: FakeAuthServer, resource: Resource, settings: Any
) -> None:
    from django.core.management import call_command

    auth.dpop, resource.challenge = True, "DPoP"
    account = await link(server)
    settings.ENCRYPTION_KEYS = ["a-new-key", *settings.ENCRYPTION_KEYS]
    await in_rows(call_command, "rotate_keys")
    settings.ENCRYPTION_KEYS = ["a-new-key"]
    row = await LinkedAccount.objects.as_system().aget(pk=account.pk)
    assert row.tokens == account.tokens
    assert {"access_token", "refresh_token", "dpop_key"} <= row.tokens.keys()
