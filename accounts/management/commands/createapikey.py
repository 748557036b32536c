"""`createapikey USER --org ORG --name NAME`: make an API key and print it once."""

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction
from django.utils import timezone

from accounts import audit
from accounts.models import ApiKey, AuditAction, Membership, User


class Command(BaseCommand):
    help = "Makes an API key of a user in an organization and prints it, once, as the last word of the output."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("user", help="username or e-mail address")
        parser.add_argument("--org", required=True, help="slug of an organization of which the user is a member")
        parser.add_argument("--name", required=True, help="what the key is for, to recognise it later")
        parser.add_argument("--scope", default="chat", help=f"comma list of {', '.join(ApiKey.SCOPES)} (default: chat)")
        parser.add_argument("--days", type=int, help="expires after so many days (default: never)")

    def handle(self, *args: Any, user: str, org: str, name: str, scope: str, days: int | None, **options: Any) -> None:
        scopes = [word.strip() for word in scope.split(",") if word.strip()]
        unknown = [word for word in scopes if word not in ApiKey.SCOPES]
        if unknown or not scopes:
            raise CommandError(
                f"--scope: {', '.join(unknown) or 'empty'}; known scopes are {', '.join(ApiKey.SCOPES)}."
            )
        if days is not None and days < 1:
            raise CommandError("--days: at least 1.")
        if not 0 < len(name) <= 120:
            raise CommandError("--name: between 1 and 120 characters.")
        person = User.named(user)
        if person is None:
            raise CommandError(f"There is no user {user!r}.")
        membership = Membership.objects.active().filter(user=person, organization__slug=org).first()
        if membership is None:
            raise CommandError(f"{person.username} is not an active member of an active organization {org!r}.")
        with transaction.atomic():
            key, secret = ApiKey.issue(
                organization_id=membership.organization_id,
                user=person,
                name=name,
                scopes=list(dict.fromkeys(scopes)),
                expires_at=timezone.now() + timedelta(days=days) if days else None,
            )
            audit.record(
                AuditAction.KEY_CREATED,
                organization_id=membership.organization_id,
                via=audit.Via.COMMAND,
                target=audit.Target("key", key.pk, key.prefix),
                person_id=person.pk,
                details={"scopes": key.scopes},
            )
        until = f", until {key.expires_at:%Y-%m-%d}" if key.expires_at else ""
        self.stderr.write(f"Key “{name}” of {person.username} in {org}, scope {', '.join(key.scopes)}{until}.")
        self.stdout.write(secret)
