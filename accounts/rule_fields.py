"""The column of tool rules: whoever saves them, the people that they name are stored by id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models

if TYPE_CHECKING:
    _JSONField = models.JSONField[Any, Any]
else:
    _JSONField = models.JSONField


class RulesField(_JSONField):
    """A list of `accounts.rules.Rule`, of a model with an `organization`; forms are given it with user names.

    To the database it is JSON as any other: `QuerySet.update` stores what it is given, and a name that is stored leads
    to nobody.
    """

    def deconstruct(self) -> Any:
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.JSONField", args, kwargs

    def pre_save(self, model_instance: Any, add: bool) -> Any:
        from accounts.approvers import bound  # which knows the models that have such a column

        rules = bound(model_instance.organization_id, super().pre_save(model_instance, add))
        setattr(model_instance, self.attname, rules)
        return rules

    def value_from_object(self, obj: Any) -> Any:
        from accounts.approvers import named

        return named(super().value_from_object(obj))
