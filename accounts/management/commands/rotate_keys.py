"""`rotate_keys`: encrypt every stored secret anew with the first of `ENCRYPTION_KEYS`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

from django.apps import apps
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import models
from django.db.models import Value
from django.db.models.functions import Cast

from accounts import audit
from accounts.audit_guard import opened
from accounts.models import AuditAction, AuditRecord
from chatui.fields import DecryptionError, EncryptedJSONField, EncryptedTextField, rotated

Encrypted = EncryptedTextField | EncryptedJSONField


def encrypted_fields() -> Iterator[tuple[type[models.Model], Encrypted]]:
    """Every encrypted field of every model that is installed, with the model whose table holds it."""
    for model in apps.get_models(include_auto_created=True):
        if not model._meta.proxy and model._meta.managed:
            for field in model._meta.local_concrete_fields:
                if isinstance(field, Encrypted):
                    yield model, field


class Command(BaseCommand):
    help = (
        "Encrypts every stored secret anew with the first of ENCRYPTION_KEYS. Put the new key in front, run this, then "
        "remove the old key. Safe to run while the server runs, and again: what is current is left alone. What no key "
        "can decrypt is named and left as it is; the exit status is then 1."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--batch", type=int, default=500, help="rows read at a time (default: 500)")

    def handle(self, *args: Any, batch: int, **options: Any) -> None:
        lost = 0
        for model, field in encrypted_fields():
            lost += self._rotate(model, field, max(1, batch))
        audit.record(AuditAction.KEYS_ROTATED, organization_id=None, via=audit.Via.COMMAND, details={"lost": lost})
        if lost:
            raise CommandError(f"{lost} stored secrets cannot be decrypted with any of ENCRYPTION_KEYS; see above.")

    def _rotate(self, model: type[models.Model], field: Encrypted, batch: int) -> int:
        """Rotate one column, by primary key so that memory stays flat; returns how many could not be decrypted."""
        name = f"{model._meta.label}.{field.name}"
        changed = current = lost = 0
        # As the column holds it: read through the field, one bad row would fail its whole batch.
        rows = model._base_manager.annotate(stored=Cast(field.name, models.TextField())).order_by("pk")
        page = list(rows.values_list("pk", "stored")[:batch])
        while page:
            with opened("rotation") if model is AuditRecord else nullcontext():
                for pk, stored in page:
                    if field.is_clear(stored):
                        continue
                    try:
                        fresh = rotated(stored)
                    except DecryptionError:
                        lost += 1
                        self.stderr.write(f"{name} of {pk}: cannot be decrypted, left as it is.")
                        continue
                    if fresh is None:
                        current += 1
                    else:
                        # Guarded by what was read: a value that was saved meanwhile is newer, and already current.
                        value = Value(fresh, output_field=models.TextField())
                        changed += rows.filter(pk=pk, stored=stored).update(**{field.name: value})
            page = list(rows.filter(pk__gt=page[-1][0]).values_list("pk", "stored")[:batch])
        self.stdout.write(f"{name}: {changed} rotated, {current} current, {lost} undecryptable.")
        return lost
