"""Rules name people by id: who holds a name of a stored rule now is who is meant, and nobody who takes it later."""

from __future__ import annotations

from typing import Any

from django.db import migrations

RULED = (("accounts", "Group"), ("mcpservers", "MCPServer"), ("agents", "Agent"))


def _bound(rules: Any, ids: dict[str, Any]) -> Any:
    if not isinstance(rules, list):
        return rules
    return [
        {**rule, "approvers": [_bound_name(name, ids) for name in rule["approvers"]]}
        if isinstance(rule, dict) and isinstance(rule.get("approvers"), list)
        else rule
        for rule in rules
    ]


def _bound_name(name: Any, ids: dict[str, Any]) -> Any:
    if not isinstance(name, str) or name.startswith("group:"):
        return name
    return ids.get(name, f"nobody:{name}")


def bind(apps: Any, schema_editor: Any) -> None:
    members = apps.get_model("accounts", "Membership").objects
    for app, name in RULED:
        model = apps.get_model(app, name)
        for row in list(model._base_manager.exclude(rules=[]).only("organization_id", "rules")):
            ids = {
                username: f"user:{user_id}"
                for user_id, username in members.filter(organization_id=row.organization_id).values_list(
                    "user_id", "user__username"
                )
            }
            rules = _bound(row.rules, ids)
            if rules != row.rules:
                model._base_manager.filter(pk=row.pk).update(rules=rules)


class Migration(migrations.Migration):
    dependencies = [
        ("agents", "0003_other_models"),
        ("accounts", "0006_own_servers"),
        ("mcpservers", "0009_barred_own_servers"),
    ]
    operations = [migrations.RunPython(bind, migrations.RunPython.noop)]
