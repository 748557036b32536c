"""Rows that belong to one organization, and the queryset that never shows another one's."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Self

from django.db import models

if TYPE_CHECKING:
    from accounts.actors import Actor


class TenantQuerySet(models.QuerySet[Any, Any]):
    """Narrow first, then ask: on a tenant model `.objects.` is followed by `visible_to(`, `create(` or `as_system(`.

    `tests/architecture` walks the code for this.
    """

    def visible_to(self, actor: Actor) -> Self:
        """The rows of the actor's organization. Subclasses narrow further."""
        return self.filter(organization_id=actor.organization_id)

    def as_system(self) -> Self:
        """All rows: for code that acts for the system (reaper, admin behind its own policy, configuration as code)."""
        return self.all()


class TenantModel(models.Model):
    """A row of one organization, with an unguessable id (which is still never a capability).

    Each subclass names its manager: `objects = TenantQuerySet.as_manager()`, or one of a narrower queryset.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    organization = models.ForeignKey("accounts.Organization", on_delete=models.CASCADE, related_name="+")

    class Meta:
        abstract = True
