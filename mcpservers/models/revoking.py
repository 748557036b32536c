"""What is still to be revoked of linked accounts that are gone: it outlives person, server and organization."""

from __future__ import annotations

import uuid

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from accounts.tenancy import TenantQuerySet
from chatui.fields import EncryptedJSONField


class Revocation(models.Model):
    """Tokens that their authorization server is to forget. No foreign keys; it goes when that is done or given up."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    organization_id = models.UUIDField()
    server_id = models.UUIDField()
    server = models.CharField(max_length=24)  # its slug
    account_id = models.UUIDField()
    person_id = models.UUIDField(null=True)
    what = EncryptedJSONField()  # a `mcpservers.oauth.revocation.Revocable`
    attempts = models.PositiveSmallIntegerField(default=0)  # begun
    due_at = models.DateTimeField(default=timezone.now, db_index=True)

    objects = TenantQuerySet.as_manager()

    class Meta:
        verbose_name = _("revocation")
