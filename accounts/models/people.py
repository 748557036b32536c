"""Users, organizations, memberships, groups, API keys and one-time sign-in links."""

from __future__ import annotations

import hashlib
import secrets
import uuid
from datetime import datetime, timedelta
from typing import Any, Self

from django.contrib.auth.models import AbstractUser
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models, transaction
from django.db.models import Q
from django.db.models.functions import Lower
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from accounts.budgets import violations
from accounts.models.spending import BudgetCounter
from accounts.rule_fields import RulesField
from accounts.rules import rule_findings

slug_validator = RegexValidator(r"\A[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?\Z", _("Use a-z, 0-9 and inner hyphens."))


class Role(models.TextChoices):
    """What a member may do is in `accounts.policy`, as a table."""

    GUEST = "guest", _("Guest")
    MEMBER = "member", _("Member")
    AUDITOR = "auditor", _("Auditor")
    ADMIN = "admin", _("Admin")
    OWNER = "owner", _("Owner")


class User(AbstractUser):
    """A person. `is_staff` is not used: the admin is entered by membership; superusers see everything."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    email = models.EmailField(_("email address"), blank=True)
    timezone = models.CharField(max_length=64, blank=True)
    preferences = models.JSONField(default=dict, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(Lower("email"), name="one_user_per_email", condition=~Q(email="")),
        ]

    @classmethod
    def named(cls, name: str) -> User | None:
        """The user with this username, else the one with this e-mail address; None without either."""
        found = cls.objects.filter(username=name).first()
        return found or (cls.objects.filter(email__iexact=name).first() if name else None)


class Organization(models.Model):
    class OwnServers(models.TextChoices):
        NOBODY = "nobody", _("Nobody")
        MEMBERS = "members", _("Members, admins and owners, each for themselves alone")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    slug = models.CharField(max_length=64, unique=True, validators=[slug_validator])
    name = models.CharField(max_length=120)
    is_active = models.BooleanField(default=True)
    budgets = models.JSONField(default=list, blank=True)  # [{per, tokens_per_day, …}], see accounts.budgets
    audit_days = models.PositiveIntegerField(
        _("days that audit entries are kept"),
        null=True,
        blank=True,
        validators=[MinValueValidator(1), MaxValueValidator(36500)],
        help_text=_("Older entries are deleted. Empty: what the installation has set (AUDIT_DAYS)."),
    )
    audit_bodies = models.BooleanField(
        _("keep contents of tool calls"),
        default=False,
        help_text=_("Arguments and results, encrypted, with each entry. Only auditors and owners can read them."),
    )
    own_servers = models.CharField(
        _("who may add MCP servers of their own"),
        max_length=16,
        choices=OwnServers.choices,
        default=OwnServers.NOBODY,
        help_text=_("Only agents that use people's own servers offer them, and each person only their own."),
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    def save(self, *args: Any, **kwargs: Any) -> None:
        """With other budgets what was spent is counted anew, from the records: a counter knows only what it bounded."""
        stored = Organization.objects.filter(pk=self.pk) if not self._state.adding else Organization.objects.none()
        before = stored.values_list("budgets", flat=True).first()
        super().save(*args, **kwargs)
        if before is not None and before != self.budgets:
            # Not within: rounds hold counters and wait for this row.
            transaction.on_commit(self._count_anew)

    def _count_anew(self) -> None:
        counters = BudgetCounter.objects.as_system().filter(organization=self.pk)
        with transaction.atomic():
            # In the order in which rounds lock them: else one of the two could wait for the other in a circle.
            held = list(counters.select_for_update().order_by("pk").values_list("pk", flat=True))
            counters.filter(pk__in=held).delete()

    def clean(self) -> None:
        """Budgets that cannot be meant are refused where they are entered, each with its place."""
        found = violations(self.budgets, stored=True)
        if found:
            words = [f"{'.'.join(map(str, where)) or 'budgets'}: {what}" for where, what in found]
            raise ValidationError({"budgets": words})


class Group(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="groups")
    slug = models.CharField(max_length=64, validators=[slug_validator])
    name = models.CharField(max_length=120, blank=True)
    rules = RulesField(default=list, blank=True)  # [{tool: glob over "server__tool", do, …}], see accounts.rules

    class Meta:
        ordering = ["slug"]
        constraints = [models.UniqueConstraint(fields=["organization", "slug"], name="one_group_per_slug")]

    def __str__(self) -> str:
        return self.name or self.slug

    def clean(self) -> None:
        """Rules that cannot be meant are refused where they are entered, each with its place."""
        found = list(rule_findings(self.rules))
        if found:
            raise ValidationError({"rules": found})


class MembershipQuerySet(models.QuerySet["Membership"]):
    def active(self) -> Self:
        return self.filter(is_active=True, user__is_active=True, organization__is_active=True)


class Membership(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=Role.choices, default=Role.MEMBER)
    groups = models.ManyToManyField(Group, related_name="memberships", blank=True)
    is_active = models.BooleanField(default=True)
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    objects = MembershipQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["organization", "user"], name="one_membership_per_user")]

    def __str__(self) -> str:
        return f"{self.user} in {self.organization}"


def digest(secret: str) -> str:
    """The stored form of a random secret of ours: 256 bits of entropy need no slow hash."""
    return hashlib.sha256(secret.encode()).hexdigest()


class ApiKeyQuerySet(models.QuerySet["ApiKey"]):
    def usable(self, now: datetime | None = None) -> Self:
        return self.filter(revoked_at=None).filter(Q(expires_at=None) | Q(expires_at__gt=now or timezone.now()))


class ApiKey(models.Model):
    """A key of one user in one organization. Only its digest is stored; `prefix` is for recognising it."""

    SCOPES = ("chat", "read", "approve", "admin")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    organization = models.ForeignKey(Organization, on_delete=models.CASCADE, related_name="api_keys")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_keys")
    name = models.CharField(max_length=120)
    prefix = models.CharField(max_length=16, editable=False)
    hash = models.CharField(max_length=64, unique=True, editable=False)
    scopes = models.JSONField(default=list)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = ApiKeyQuerySet.as_manager()

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    @classmethod
    def issue(cls, **fields: Any) -> tuple[ApiKey, str]:
        """Make a key and return it with its secret, which is shown once and never stored."""
        secret = "cui_" + secrets.token_urlsafe(32)
        fields.setdefault("scopes", ["chat"])
        return cls.objects.create(prefix=secret[:10], hash=digest(secret), **fields), secret


class SigninLinkQuerySet(models.QuerySet["SigninLink"]):
    def usable(self) -> Self:
        return self.filter(used_at=None, expires_at__gt=timezone.now(), user__is_active=True)

    def find(self, secret: str) -> SigninLink | None:
        """The link of `secret`, with its user, if it can still be used."""
        return self.usable().select_related("user").filter(hash=digest(secret)).first()

    def use(self, secret: str) -> User | None:
        """The user of the link, which is used up by this; None if somebody else was first, or it cannot be used."""
        link = self.find(secret)
        if link is None or not self.usable().filter(pk=link.pk).update(used_at=timezone.now()):
            return None
        return link.user


class SigninLink(models.Model):
    """A one-time sign-in link, valid for ten minutes; only its digest is stored."""

    LIFETIME = timedelta(minutes=10)

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="signin_links")
    hash = models.CharField(max_length=64, unique=True, editable=False)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = SigninLinkQuerySet.as_manager()

    @classmethod
    def issue(cls, user: User, *, now: datetime | None = None) -> str:
        """Make a link for `user` and return its secret, for `/accounts/link/<secret>/`."""
        secret = secrets.token_urlsafe(32)
        cls.objects.create(user=user, hash=digest(secret), expires_at=(now or timezone.now()) + cls.LIFETIME)
        return secret
