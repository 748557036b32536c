"""Forms of the admin for servers and grants: secrets only written, what cannot work refused by the field."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from accounts.tenant_admin import TenantForm
from chatui.form_fields import LinesField, RulesField, SecretMap, SecretMapField, VariablesField
from mcpservers.definitions import findings
from mcpservers.models import MCPServer, Transport
from mcpservers.oauth.config import addresses
from mcpservers.oauth_field import OAuthField
from mcpservers.renaming import loosened

# A change of one of these changes what is connected to, or as whom.
DEFINITION = ("transport", "url", "command", "args", "headers", "env", "variables", "oauth")


class MCPServerForm(TenantForm):
    superuser: ClassVar[bool] = False
    args = LinesField(label=_("Arguments"), help_text=_("One per line."))
    headers = SecretMapField(
        label=_("Headers"),
        help_text=_("Sent with each request. A value may hold {{VARIABLE}} and {{user.email}}-like placeholders."),
    )
    env = SecretMapField(label=_("Environment"), help_text=_("Of the local process."))
    variables = VariablesField(
        label=_("User variables"), help_text=_("What each user enters for themselves; used as {{NAME}}.")
    )
    oauth = OAuthField(
        label=_("Accounts"), help_text=_("How people (or the organization) get an account there, by OAuth.")
    )
    read_only = LinesField(
        label=_("Read-only tools"), help_text=_("Names or patterns, one per line. These need no approval.")
    )
    rules = RulesField(
        label=_("Rules"),
        help_text=_("The first match decides. Without a match a person is asked, but for read-only tools."),
    )

    class Meta:
        labels: ClassVar[dict[str, Any]] = {
            "url": _("URL"),
            "new_tools": _("New tools"),
            "use_instructions": _("Give its instructions to the model"),
        }
        help_texts: ClassVar[dict[str, Any]] = {
            "url": _("Where the server is. Path and query may hold placeholders such as {{user.username}}."),
            "command": _("Of a local process (stdio); “python” is the interpreter that runs this site."),
            "timeout": _("Seconds without a sign of life after which a call is given up."),
            "trust": _(
                "What is accepted of its first list of tools. A tool that changes later waits for an admin in any case."
            ),
            "new_tools": _("Of the tools that come after its first list."),
            "slug": _("Begins the names of its tools, as the model sees them."),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.dropped: list[str] = []  # names of stored secrets that a change of address took away
        for name in ("headers", "env"):
            field = self.fields.get(name)
            if isinstance(field, SecretMapField):
                field.stored = getattr(self.instance, name)
        oauth = self.fields.get("oauth")
        if isinstance(oauth, OAuthField):
            oauth.stored = self.instance.oauth
        transport = self.fields.get("transport")
        if isinstance(transport, forms.ChoiceField) and not self.superuser:
            transport.choices = [choice for choice in Transport.choices if choice[0] != Transport.STDIO]

    @property
    def moved(self) -> bool:
        """Whether the definition points elsewhere than what is stored."""
        adding: bool = self.instance._state.adding
        return not adding and bool({"url", "transport"} & set(self.changed_data))

    def clean_slug(self) -> str:
        slug = str(self.cleaned_data["slug"])
        if not self.instance._state.adding and slug != self.instance.slug:
            kept = loosened(self.instance, slug)
            if kept:
                raise ValidationError(kept)
        return slug

    def clean_url(self) -> str:
        return str(self.cleaned_data["url"]).strip()

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        if self.moved:
            for name in ("headers", "env"):
                value = cleaned.get(name)
                if isinstance(value, SecretMap):
                    self.dropped += sorted(value.keys() - value.typed)
                    cleaned[name] = value.only_typed()
            self._drop_oauth(cleaned)
        elif "oauth" in self.changed_data:
            self._drop_secrets_of_sign_in(cleaned)
        return cleaned

    def _drop_secrets_of_sign_in(self, cleaned: dict[str, Any]) -> None:
        """Another issuer, or another address of it, is not sent the secrets that were stored for the one before."""
        field, stored = self.fields.get("oauth"), self.instance.oauth
        oauth = cleaned.get("oauth")
        if not isinstance(field, OAuthField) or not stored or not oauth or addresses(oauth) == addresses(stored):
            return
        typed = field.typed_only(oauth, self["oauth"].data)
        self.dropped += sorted(oauth.keys() - (typed or {}).keys())
        cleaned["oauth"] = typed

    def _drop_oauth(self, cleaned: dict[str, Any]) -> None:
        """Another address has another sign-in; what was entered for it just now stays."""
        field, stored = self.fields.get("oauth"), self.instance.oauth
        if not isinstance(field, OAuthField) or not stored or "oauth" not in cleaned:
            return
        self.dropped.append("OAuth")
        typed = self["oauth"].data
        cleaned["oauth"] = field.typed_only(cleaned["oauth"], typed) if "oauth" in self.changed_data else None

    def _get_validation_exclusions(self) -> set[str]:
        # No field of the form, and yet what makes a slug unique: the organization's are apart from people's own.
        excluded: set[str] = super()._get_validation_exclusions()  # type: ignore[misc]  # of Django's ModelForm
        return excluded - {"owner"}

    def _post_clean(self) -> None:
        super()._post_clean()  # type: ignore[misc]  # of Django's ModelForm
        if self.errors or not isinstance(self.instance, MCPServer):
            return
        kept = MCPServer.objects.as_system().filter(pk=self.instance.pk).first()
        environment = settings.MCP_ENV_ALLOWLIST if self.superuser else None
        for field, message in findings(self.instance, environment=environment, kept=kept):
            self.add_error(field if field in self.fields else None, message)


class GrantForm(TenantForm):
    """Exactly one of: the whole organization, a group, a user."""

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        named = [name for name in ("whole_organization", "group", "user") if cleaned.get(name)]
        if len(named) != 1 and not self.errors:
            raise ValidationError(_("A grant names exactly one: the whole organization, a group, or a user."))
        return cleaned
