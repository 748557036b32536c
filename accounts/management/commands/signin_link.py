"""`signin_link USER`: print a one-time sign-in link."""

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction
from django.urls import reverse

from accounts import audit
from accounts.audit_signin import record_for_person
from accounts.models import AuditAction, SigninLink, User


class Command(BaseCommand):
    help = "Prints a link that signs a user in once, within ten minutes. A second factor is still asked for."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("user", help="username or e-mail address")

    def handle(self, *args: Any, user: str, **options: Any) -> None:
        person = User.named(user)
        if person is None or not person.is_active:
            raise CommandError(f"There is no active user {user!r}.")
        with transaction.atomic(), audit.acting(None, audit.Via.COMMAND):
            secret = SigninLink.issue(person)
            record_for_person(AuditAction.SIGN_IN_LINK, person.pk)
        self.stdout.write(settings.BASE_URL + reverse("signin_link", args=[secret]))
