"""Forms of the admin for endpoints, models and agents."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.utils.translation import gettext_lazy as _

from accounts.tenant_admin import TenantForm
from agents.definitions import agent_findings, endpoint_findings
from agents.models import Agent, ModelEndpoint
from chatui.form_fields import LinesField, RulesField, SecretField, SecretMap, SecretMapField


class ModelEndpointForm(TenantForm):
    api_key = SecretField(label=_("API key"))
    headers = SecretMapField(label=_("Extra headers"))

    class Meta:
        labels: ClassVar[dict[str, Any]] = {"base_url": _("Base URL")}
        help_texts: ClassVar[dict[str, Any]] = {
            "base_url": _("For example https://api.openai.com/v1. /v1 is added only where there is no path."),
            "extra_body": _("A JSON object, added to each request."),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.dropped: list[str] = []  # names of stored secrets that a change of address took away
        for name in ("api_key", "headers"):
            field = self.fields.get(name)
            if isinstance(field, SecretField | SecretMapField):
                field.stored = getattr(self.instance, name)

    def clean_base_url(self) -> str:
        return str(self.cleaned_data["base_url"]).strip()

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        if not self.instance._state.adding and "base_url" in self.changed_data:
            self._drop_secrets(cleaned)
        return cleaned

    def _drop_secrets(self, cleaned: dict[str, Any]) -> None:
        if self.instance.api_key and "api_key" not in self.changed_data:
            self.dropped.append(str(_("API key")))
            cleaned["api_key"] = ""
        headers = cleaned.get("headers")
        if isinstance(headers, SecretMap):
            self.dropped += sorted(headers.keys() - headers.typed)
            cleaned["headers"] = headers.only_typed()

    def _post_clean(self) -> None:
        super()._post_clean()  # type: ignore[misc]  # of Django's ModelForm
        if not self.errors and isinstance(self.instance, ModelEndpoint):
            for field, message in endpoint_findings(self.instance):
                self.add_error(field if field in self.fields else None, message)


class AgentForm(TenantForm):
    starters = LinesField(label=_("Starters"), help_text=_("Questions that a new chat suggests, one per line."))
    rules = RulesField(
        label=_("Rules"),
        help_text=_("On top of the servers' own: the strictest decides. Patterns are over server__tool."),
    )

    def _post_clean(self) -> None:
        super()._post_clean()  # type: ignore[misc]  # of Django's ModelForm
        if not self.errors and isinstance(self.instance, Agent):
            for field, message in agent_findings(self.instance):
                self.add_error(field if field in self.fields else None, message)


class AgentServerForm(TenantForm):
    tools = LinesField(label=_("Tools"), help_text=_("Names or patterns, one per line; none means all."))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        servers = self.fields.get("server")
        if isinstance(servers, forms.ModelChoiceField) and servers.queryset is not None:
            servers.queryset = servers.queryset.filter(owner=None)  # people's own are theirs alone
