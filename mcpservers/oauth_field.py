"""The form field of a server's `oauth`: whose accounts are used, our client there, and what only some servers need.

Secrets are only ever written: a page tells that one is stored, and says keep, replace or clear.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.template.loader import render_to_string
from django.utils.datastructures import MultiValueDict
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext_lazy as _

from mcpservers.oauth import config
from mcpservers.oauth.config import SECRETS

OAuth = dict[str, Any]
DISCOVERED, PEOPLE, ORGANIZATION, WORKLOAD = "discovered", "people", "organization", "workload"
KINDS = (
    (DISCOVERED, _("As the server says: it is used as it is, or with accounts if it asks for them")),
    (PEOPLE, _("Each user signs in with an account of their own")),
    (ORGANIZATION, _("One account of the organization (client credentials)")),
    (WORKLOAD, _("One account of the organization (a workload's token, RFC 7523)")),
)
_GRANTS = {ORGANIZATION: "client_credentials", WORKLOAD: config.WORKLOAD}
_OWN_INPUTS = (*SECRETS, "client_id", "scopes", "share_tools", "grant")


class OAuthWidget(forms.Widget):
    """Several inputs under one name. `stored` are the names of the secrets that there are."""

    template_name = "admin/widgets/oauth.html"
    stored: frozenset[str] = frozenset()

    def _render(self, template_name: str, context: dict[str, Any], renderer: object = None) -> SafeString:
        return mark_safe(render_to_string(template_name, context))  # among the project's: forms know only packages'

    def get_context(self, name: str, value: Any, attrs: Mapping[str, Any] | None) -> dict[str, Any]:
        context = super().get_context(name, None, dict(attrs or {}))
        shown = value if isinstance(value, dict) and "kind" in value else inputs_of(value)
        context["widget"] |= {"kinds": KINDS, "shown": shown, "stored": {key: key in self.stored for key in SECRETS}}
        return context

    def value_from_datadict(self, data: Mapping[str, Any], files: MultiValueDict[str, Any], name: str) -> OAuth:
        texts = {
            key: str(data.get(f"{name}-{key}", "")).strip() for key in ("kind", "client_id", "scopes", "more", *SECRETS)
        }
        boxes = {key: f"{name}-{key}" in data for key in ("share_tools", *(f"clear_{key}" for key in SECRETS))}
        return texts | boxes

    def value_omitted_from_data(self, data: Mapping[str, Any], files: object, name: str) -> bool:
        return f"{name}-kind" not in data

    def id_for_label(self, id_: str) -> str:
        return id_


def inputs_of(oauth: OAuth | None) -> OAuth:
    """What the inputs show of a stored `oauth`; of its secrets nothing."""
    kind = DISCOVERED if oauth is None else PEOPLE
    oauth = oauth or {}
    kind = next((kind for kind, grant in _GRANTS.items() if grant == oauth.get("grant")), kind)
    scopes = oauth.get("scopes") or ()
    more = {key: value for key, value in oauth.items() if key not in _OWN_INPUTS}
    return {
        "kind": kind,
        "client_id": oauth.get("client_id") or "",
        "scopes": scopes if isinstance(scopes, str) else " ".join(scopes),
        "share_tools": bool(oauth.get("share_tools")),
        "more": json.dumps(more, indent=2, ensure_ascii=False) if more else "",
    }


class OAuthField(forms.Field):
    """Cleaned to `MCPServer.oauth`. `stored`, which the form must set, has the secrets that are kept."""

    widget: OAuthWidget | type[OAuthWidget] = OAuthWidget

    def __init__(self, **kwargs: Any) -> None:
        kwargs.setdefault("required", False)
        super().__init__(**kwargs)
        self._stored: OAuth | None = None

    @property
    def stored(self) -> OAuth | None:
        return self._stored

    @stored.setter
    def stored(self, value: OAuth | None) -> None:
        self._stored = value
        self.widget.stored = frozenset(key for key in SECRETS if (value or {}).get(key))

    def clean(self, value: OAuth) -> OAuth | None:
        oauth: OAuth = self._more(value["more"])
        if value["client_id"]:
            oauth["client_id"] = value["client_id"]
        if value["scopes"]:
            oauth["scopes"] = value["scopes"].replace(",", " ").split()
        if value["share_tools"]:
            oauth["share_tools"] = True
        for key in SECRETS:
            kept = "" if value[f"clear_{key}"] else (self.stored or {}).get(key, "")
            if key == "assertion" and value["kind"] != WORKLOAD:
                kept = ""  # it serves nothing else
            if value[key] or kept:
                oauth[key] = value[key] or kept
        if value["kind"] not in dict(KINDS):
            raise ValidationError(_("Choose whose accounts are used."))
        if value["kind"] in _GRANTS:
            oauth["grant"] = _GRANTS[value["kind"]]
        elif value["kind"] == DISCOVERED and not oauth:
            return None
        elif value["kind"] == DISCOVERED and set(oauth) <= set(SECRETS):
            return None  # who goes back to what is discovered needs no secret
        elif value["kind"] == DISCOVERED:
            raise ValidationError(_("These settings are for accounts: choose that each user signs in."))
        return oauth

    @staticmethod
    def _more(text: str) -> OAuth:
        if not text:
            return {}
        try:
            more = json.loads(text)
        except ValueError:
            more = None
        if not isinstance(more, dict):
            raise ValidationError(_('“More” is a JSON object, such as {"issuer": "https://login.example.org"}.'))
        secret = sorted(set(more) & set(_OWN_INPUTS))
        if secret:
            raise ValidationError(_("“%(key)s” has a field of its own."), params={"key": secret[0]})
        return more

    def has_changed(self, initial: Any, data: OAuth | None) -> bool:
        if data is None:
            return False
        try:
            return self.clean(data) != (self.stored if self.stored is not None else initial)
        except ValidationError:
            return True

    def typed_only(self, value: OAuth | None, data: OAuth) -> OAuth | None:
        """`value` without the secrets that were stored before: they are not sent to another address."""
        if value is None:
            return None
        return {key: item for key, item in value.items() if key not in SECRETS or data[key]}
