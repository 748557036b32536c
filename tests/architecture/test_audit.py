"""Every door through which something is changed has a stated expectation about the audit; a new one fails without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.contrib.admin import site
from django.urls import get_resolver
from django.urls.resolvers import URLPattern, URLResolver

from accounts.models import AuditAction as A
from accounts.models import AuditRecord
from conversations import wire
from tests.architecture import test_doors as doors
from tests.architecture.code import ROOMS, ROOT
from tests.architecture.test_other_methods import SECOND

# What is recorded, or why nothing is.
Expectation = A | tuple[A, ...] | str
NOTHING_CHANGES = "it changes nothing"
OWN_CHATS = "what people do with their own chats is theirs; the calls in them are recorded"

ADMIN_ACTIONS: dict[str, Expectation] = {
    "accounts.ApiKey revoke": A.KEY_REVOKED,
}
ADMIN_PAGES: dict[str, Expectation] = {
    "accounts_auditrecord_contents": A.AUDIT_BODY_READ,
    "accounts_auditrecord_export": A.AUDIT_EXPORTED,
    "agents_modelendpoint_test": A.CONNECTION_TESTED,
    "connections": NOTHING_CHANGES,
    "preview": NOTHING_CHANGES,
    "why": NOTHING_CHANGES,
    "connections_close": A.CONNECTION_CLOSED,
    "mcpservers_mcpserver_health": NOTHING_CHANGES,
    "mcpservers_mcpserver_log": NOTHING_CHANGES,
    "mcpservers_mcpserver_discover": "what the server says of itself is read again",
    "mcpservers_mcpserver_oauth": NOTHING_CHANGES,
    "mcpservers_mcpserver_revoke": A.LINK_REVOKED,
    "mcpservers_mcpserver_pins": NOTHING_CHANGES,
    "mcpservers_mcpserver_pins_decide": (A.PIN_ACCEPTED, A.PIN_REJECTED),
    "mcpservers_mcpserver_reconnect": A.CONNECTION_CLOSED,
    "mcpservers_mcpserver_refresh": A.CONNECTION_TESTED,
    "mcpservers_mcpserver_test": A.CONNECTION_TESTED,
    "mcpservers_mcpserver_try": A.TOOL_CALL,
    "password_change": "it leads to the account's own page, whose change is recorded",
    "password_change_done": NOTHING_CHANGES,
    "login": "it leads to the sign-in, which is recorded",
    "logout": A.SIGN_OUT,
    "index": NOTHING_CHANGES,
    "app_list": NOTHING_CHANGES,
    "autocomplete": NOTHING_CHANGES,
    "jsi18n": NOTHING_CHANGES,
    "view_on_site": NOTHING_CHANGES,
    "search": NOTHING_CHANGES,
    "toggle_sidebar": "how the admin looks to oneself",
}
COMMANDS: dict[str, Expectation] = {
    "apply_config": A.CONFIGURATION_APPLIED,
    "createapikey": A.KEY_CREATED,
    "export_config": A.CONFIGURATION_EXPORTED,
    "rotate_keys": A.KEYS_ROTATED,
    "signin_link": A.SIGN_IN_LINK,
}
API: dict[str, Expectation] = {
    "PATCH me": "one's own settings",
    "PATCH conversations/<uuid:conversation>": OWN_CHATS,
    "DELETE conversations/<uuid:conversation>": OWN_CHATS,
    "POST conversations/<uuid:conversation>/restore": OWN_CHATS,
    "PUT servers/<slug:server>/variables": A.VARIABLES_CHANGED,
    "DELETE servers/<slug:server>/variables": A.VARIABLES_CHANGED,
    "POST attachments": OWN_CHATS,
    "POST audit/export": A.AUDIT_EXPORTED,
    "POST audit/<uuid:entry>/contents": A.AUDIT_BODY_READ,
    "POST turns": OWN_CHATS,
    "POST turns/<uuid:turn>/stop": OWN_CHATS,
    "POST connections/servers": A.DEFINITION_CREATED,
    "PATCH connections/servers/<uuid:own_server>": A.DEFINITION_CHANGED,
    "DELETE connections/servers/<uuid:own_server>": A.DEFINITION_DELETED,
    "POST connections/servers/<uuid:own_server>/check": A.CONNECTION_TESTED,
    "POST connections/servers/<uuid:own_server>/tools": (A.PIN_ACCEPTED, A.PIN_REJECTED),
    "POST approvals/<uuid:question>": A.APPROVAL_ANSWERED,
    "DELETE approvals/standing/<uuid:standing_id>": A.APPROVAL_REVOKED,
    "PATCH connections/accounts/<uuid:account>": A.LINK_CHANGED,
    "DELETE connections/accounts/<uuid:account>": A.LINK_REVOKED,
}
# Of the chat, of the sign-in at servers, and the compatible API: what takes more than a look, or leads somebody in.
PAGES: dict[str, Expectation] = {
    "o/<slug:organization>/usage/export/": A.USAGE_EXPORTED,
    "o/<slug:organization>/connections/accounts/<uuid:account>/": (A.LINK_CHANGED, A.LINK_REVOKED),
    "o/<slug:organization>/connections/<slug:server>/variables/": A.VARIABLES_CHANGED,
    "o/<slug:organization>/connections/<slug:server>/begin": "what comes of it is recorded where it comes back",
    "mcp/oauth/callback": (A.LINK_CREATED, A.LINK_FAILED),
    "mcp/oauth/client.json": NOTHING_CHANGES,
    "accounts/link/<str:secret>/": A.SIGN_IN,
    "accounts/oidc/<str:provider_id>/login/callback/": A.SIGN_IN,
    "favicon.ico": NOTHING_CHANGES,
    "v1/chat/completions": A.TOOL_CALL,
}
FRAMES: dict[str, Expectation] = {
    **dict.fromkeys(("turn.start", "turn.regenerate", "turn.continue", "turn.stop", "turn.follow"), OWN_CHATS),
    "call.cancel": OWN_CHATS,
    "call.decide": (A.APPROVAL_ANSWERED, A.APPROVAL_REMEMBERED),
    "elicitation.answer": A.ELICITATION_ANSWERED,
    "ping": NOTHING_CHANGES,
}


def admin_pages() -> set[str]:
    """The names of the admin's own addresses: neither lists nor forms, whose changes one place records."""
    usual = {f"{m._meta.app_label}_{m._meta.model_name}_{what}" for m in site._registry for what in _USUAL}
    names = set()

    def walk(patterns: list[Any]) -> None:
        for pattern in patterns:
            if isinstance(pattern, URLResolver):
                walk(pattern.url_patterns)
            elif pattern.name:
                names.add(pattern.name)

    walk(site.get_urls())
    return names - usual


_USUAL = ("changelist", "add", "change", "delete", "history")


def admin_actions() -> set[str]:
    return {
        f"{model._meta.label} {action if isinstance(action, str) else action.__name__}"
        for model, admin in site._registry.items()
        for action in admin.actions or ()
    }


def commands() -> set[str]:
    return {
        path.stem
        for room in ROOMS
        for path in Path(ROOT, room).glob("management/commands/*.py")
        if path.stem != "__init__"
    }


def api_writes() -> set[str]:
    api = next(r for r in get_resolver().url_patterns if isinstance(r, URLResolver) and str(r.pattern) == "api/v1/")

    def walk(patterns: list[Any], before: str = "") -> set[str]:
        found: set[str] = set()
        for pattern in patterns:
            address = f"{before}{pattern.pattern}"
            if isinstance(pattern, URLPattern):
                handlers = getattr(pattern.callback, "handlers", {})
                found |= {f"{method} {address}" for method in handlers if method not in ("GET", "HEAD")}
            else:
                found |= walk(pattern.url_patterns, address)
        return found

    return walk(api.url_patterns)


def test_every_action_of_the_admin_is_expected() -> None:
    assert admin_actions() == ADMIN_ACTIONS.keys()


def test_every_page_of_the_admin_that_is_no_list_and_no_form_is_expected() -> None:
    assert not admin_pages() - ADMIN_PAGES.keys()


def test_every_command_is_expected() -> None:
    assert commands() == COMMANDS.keys()


def test_every_writing_address_of_the_api_is_expected() -> None:
    assert api_writes() == API.keys()


def test_every_page_that_takes_more_than_a_look_is_expected() -> None:
    posts = {address for address, (method, *_) in doors.PAGES.items() if method == "POST"}
    posts |= {address for address, method in SECOND if method == "POST"}
    posts |= {f"v1/{name.removeprefix('POST ')}" for name in doors.OPENAI if name.startswith("POST ")}
    assert posts | set(doors.OPEN) == PAGES.keys()


def test_every_frame_is_expected() -> None:
    assert FRAMES.keys() == wire.CLIENT_TYPES


def test_every_action_has_words_and_fits_its_column() -> None:
    limit = AuditRecord._meta.get_field("action").max_length
    for action in A:
        assert action.label
        assert len(action.value) <= (limit or 0)
