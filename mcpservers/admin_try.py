"""*Try this tool*: a form from the tool's schema, and the call, as the admin's own actor and through the same door."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _
from unfold.widgets import (
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
)

from accounts import audit
from accounts.actors import Actor
from accounts.models import AuditAction
from mcpservers import calls, connections
from mcpservers.approvals import Do, RuleVerdict
from mcpservers.entries import Definition
from mcpservers.models import MCPServer
from mcpservers.outcomes import ToolOutcome
from mcpservers.requests import RequestContext
from mcpservers.structured import violation
from mcpservers.visible import revealed, visible

MAX_FIELDS = 40  # of a schema with more, the arguments are entered as JSON
Schema = Mapping[str, Any]


class TryForm(forms.Form):
    """One field for each property of the tool's schema; or, where that says too little, one for the arguments as JSON.

    `arguments()` are the cleaned values. What is left empty is not sent.
    """

    def __init__(self, definition: Definition | None, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.definition = definition
        self.schema: Schema = definition.input_schema if definition is not None else {}
        properties = self.schema.get("properties")
        self._names: dict[str, str] = {}  # field → property
        if isinstance(properties, dict) and 0 < len(properties) <= MAX_FIELDS:
            self._names = {f"argument:{name}": name for name in properties}
        required = self.schema.get("required")
        required = required if isinstance(required, list) else []
        for field, name in self._names.items():
            schema = properties[name] if properties and isinstance(properties[name], dict) else {}
            self.fields[field] = _field(name, schema, name in required)
        if not self._names:
            self.fields["arguments"] = forms.CharField(
                label=_("Arguments, as a JSON object"),
                required=False,
                initial="{}",
                widget=UnfoldAdminTextareaWidget(attrs={"rows": 6}),
            )

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if not self.errors:
            problem = violation(self.arguments(), self.schema) if self.schema else ""
            if problem:
                raise ValidationError(problem)
        return cleaned

    def clean_arguments(self) -> Any:
        value = _json(self.cleaned_data["arguments"] or "{}")
        if not isinstance(value, dict):
            raise ValidationError(_("The arguments are a JSON object."))
        return value

    def arguments(self) -> dict[str, Any]:
        """What the tool is called with."""
        if not self._names:
            return dict(self.cleaned_data["arguments"])
        values = {name: self.cleaned_data.get(field) for field, name in self._names.items()}
        return {name: value for name, value in values.items() if value is not None and value != ""}


class _JSONField(forms.CharField):
    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        return _json(text) if text else None


class _ChoiceField(forms.ChoiceField):
    """Of values of any kind, by their place in the list."""

    def __init__(self, values: list[Any], **kwargs: Any) -> None:
        self._values = values
        choices = [("", "–"), *((str(place), _shown(value)) for place, value in enumerate(values))]
        super().__init__(choices=choices, widget=UnfoldAdminSelectWidget, **kwargs)

    def clean(self, value: Any) -> Any:
        place = super().clean(value)
        return self._values[int(place)] if place else None


def _field(name: str, schema: Schema, required: bool) -> forms.Field:
    common: dict[str, Any] = {"label": revealed(name), "required": required, "help_text": _help(schema)}
    kind, choices, default = schema.get("type"), schema.get("enum"), schema.get("default")
    if kind == "boolean":
        choices = [True, False]
    if isinstance(choices, list) and choices:
        initial = str(choices.index(default)) if default in choices and default is not None else None
        return _ChoiceField(choices, initial=initial, **common)
    match kind:
        case "integer":
            return forms.IntegerField(initial=default, widget=UnfoldAdminIntegerFieldWidget, **common)
        case "number":
            return forms.FloatField(initial=default, widget=UnfoldAdminTextInputWidget, **common)
        case "string":
            return forms.CharField(
                initial=default, strip=False, widget=UnfoldAdminTextareaWidget(attrs={"rows": 2}), **common
            )
    common["help_text"] = " ".join(filter(None, (_help(schema), str(_("As JSON.")))))
    initial = json.dumps(default, ensure_ascii=False) if default is not None else None
    return _JSONField(initial=initial, widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}), **common)


def _help(schema: Schema) -> str:
    description = schema.get("description")
    return visible(description)[:500] if isinstance(description, str) else ""


def _shown(value: Any) -> str:
    return revealed(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValidationError(_("This is not valid JSON: %(error)s"), params={"error": str(error)[:200]}) from None


async def try_tool(
    actor: Actor, server: MCPServer, tool: str, arguments: Mapping[str, Any], definition: Definition | None
) -> ToolOutcome:
    """Call `tool` as `actor`. What the actor may not do is denied as it would be in a chat; nothing is raised."""
    alone = not connections.has_manager()  # a loop made for this call: nobody would close its connections
    manager = connections.manager()
    request = RequestContext.of_trial()
    manager.open_run(request.run)

    async def progressed(*_: object) -> None: ...

    try:
        return await calls.call_tool(
            actor,
            server.pk,
            tool,
            arguments,
            turn_id=None,
            progress=progressed,
            request=request,
            input_schema=definition.input_schema if definition is not None else None,
            output_schema=definition.output_schema if definition is not None else None,
            annotations=definition.annotations if definition is not None else None,
            pin=definition.pin if definition is not None else "",
        )
    finally:
        manager.close_run(request.run)
        if alone:
            await connections.aclose()


def record_trial(
    server: MCPServer, tool: str, arguments: Mapping[str, Any], decided: RuleVerdict, outcome: ToolOutcome
) -> None:
    """The audit entry of a call by hand, by who acts in this context; `decided` is what the rules say of it.

    A call that asks is made: who tries it is who would be asked.
    """
    body = audit.body_of(dict(arguments), outcome.text) if server.organization.audit_bodies else None
    audit.record(
        AuditAction.TOOL_CALL,
        organization_id=server.organization_id,
        server_id=server.pk,
        server=server.slug,
        tool=tool,
        account_id=outcome.account_id,
        arguments_hash=audit.arguments_hash(dict(arguments)),
        verdict=Do.DENY.value if outcome.refusal else decided.do.value,
        reason=f"Tried by hand in the admin. {outcome.refusal or decided.reason}".strip(),
        status=outcome.status,
        duration_ms=outcome.duration_ms,
        body=body,
    )
