"""What was done, by whom and with what outcome: rows that are only ever added (`accounts.audit_guard` sees to it)."""

from __future__ import annotations

import uuid

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from accounts.tenancy import TenantQuerySet
from chatui.fields import EncryptedJSONField


class AuditAction(models.TextChoices):
    """Everything that is recorded. A name is for ever: rows of years ago hold it."""

    TOOL_CALL = "tool.call", _("Tool call")
    SIGN_IN = "sign_in", _("Sign-in")
    SIGN_IN_FAILED = "sign_in.failed", _("Failed sign-in")
    SIGN_OUT = "sign_out", _("Sign-out")
    SIGN_IN_LINK = "sign_in.link_made", _("Sign-in link made")
    CREDENTIALS_CHANGED = "sign_in.changed", _("Password or second factor changed")
    LINK_CREATED = "link.created", _("Account linked")
    LINK_CHANGED = "link.changed", _("Linked account changed")
    LINK_REVOKED = "link.revoked", _("Linked account disconnected")
    LINK_NOT_REVOKED = "link.not_revoked", _("Linked account not revoked where it was linked")
    LINK_FAILED = "link.failed", _("Linking failed")
    VARIABLES_CHANGED = "variables.changed", _("Own server settings changed")
    GRANT_ADDED = "grant.added", _("Grant added")
    GRANT_CHANGED = "grant.changed", _("Grant changed")
    GRANT_REMOVED = "grant.removed", _("Grant removed")
    DEFINITION_CREATED = "definition.created", _("Definition created")
    DEFINITION_CHANGED = "definition.changed", _("Definition changed")
    DEFINITION_DELETED = "definition.deleted", _("Definition deleted")
    APPROVAL_ANSWERED = "approval.answered", _("Approval answered")
    APPROVAL_REMEMBERED = "approval.remembered", _("Standing approval given")
    APPROVAL_REVOKED = "approval.revoked", _("Standing approval revoked")
    ELICITATION_ANSWERED = "elicitation.answered", _("Server's question answered")
    PIN_ACCEPTED = "pin.accepted", _("Tool definition accepted")
    PIN_REJECTED = "pin.rejected", _("Tool definition rejected")
    PIN_DRIFT = "pin.drift", _("Tool definition waits, which its server added or changed")
    MEMBER_ADDED = "member.added", _("Member added")
    MEMBER_CHANGED = "member.changed", _("Member changed")
    MEMBER_REMOVED = "member.removed", _("Member removed")
    GROUP_CREATED = "group.created", _("Group created")
    GROUP_CHANGED = "group.changed", _("Group changed")
    GROUP_DELETED = "group.deleted", _("Group deleted")
    USER_CREATED = "user.created", _("User created")
    USER_CHANGED = "user.changed", _("User changed")
    USER_DELETED = "user.deleted", _("User deleted")
    KEY_CREATED = "key.created", _("API key created")
    KEY_CHANGED = "key.changed", _("API key changed")
    KEY_REVOKED = "key.revoked", _("API key revoked")
    ORGANIZATION_CREATED = "organization.created", _("Organization created")
    ORGANIZATION_CHANGED = "organization.changed", _("Organization changed")
    ORGANIZATION_DELETED = "organization.deleted", _("Organization deleted")
    BUDGET_CHANGED = "budget.changed", _("Budgets changed")
    CONNECTION_CLOSED = "connection.closed", _("Connection closed by an admin")
    CONNECTION_TESTED = "connection.tested", _("Connection tested")
    CONFIGURATION_APPLIED = "configuration.applied", _("Configuration applied")
    CONFIGURATION_EXPORTED = "configuration.exported", _("Configuration exported")
    KEYS_ROTATED = "keys.rotated", _("Encryption keys rotated")
    AUDIT_EXPORTED = "audit.exported", _("Audit exported")
    AUDIT_BODY_READ = "audit.body_read", _("Recorded contents read")
    AUDIT_PRUNED = "audit.pruned", _("Old audit entries deleted")
    USAGE_EXPORTED = "usage.exported", _("Usage exported")


class AuditRecord(models.Model):
    """One act. No foreign keys: it outlives everything that it names.

    People are ids alone, resolved to names where they are shown, so that a deleted account leaves a pseudonym.
    What is not personal (slugs of agents and servers, names of tools) is kept as it was called then.
    """

    class Via(models.TextChoices):
        """The door that it came through."""

        WEB = "web", _("Browser")
        KEY = "key", _("API key")
        ADMIN = "admin", _("Admin")
        COMMAND = "command", _("Command line")
        SYSTEM = "system", _("The system itself")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    at = models.DateTimeField(_("time"), default=timezone.now)
    organization_id = models.UUIDField(_("organization"), null=True)  # None: of no organization
    actor_id = models.UUIDField(_("who"), null=True)  # None: nobody that is known, or the operator at a command line
    via = models.CharField(_("through"), max_length=8, choices=Via.choices)
    action = models.CharField(_("action"), max_length=32)  # an AuditAction; `accounts.audit` takes no other
    # What it was done to, where it is not a tool call: ("server", id, slug) and the like; `person_id` if to a person.
    object_type = models.CharField(_("kind of object"), max_length=32, blank=True)
    object_id = models.CharField(_("object id"), max_length=64, blank=True)
    object_name = models.CharField(_("object"), max_length=200, blank=True)
    person_id = models.UUIDField(_("concerned person"), null=True)
    # Of a tool call.
    agent_id = models.UUIDField(_("agent id"), null=True)
    agent = models.CharField(_("agent"), max_length=64, blank=True)
    server_id = models.UUIDField(_("server id"), null=True)
    server = models.CharField(_("server"), max_length=64, blank=True)
    tool = models.CharField(_("tool"), max_length=200, blank=True)
    account_id = models.UUIDField(_("linked account"), null=True)
    turn_id = models.UUIDField(_("turn"), null=True)
    call_id = models.UUIDField(_("call"), null=True)
    arguments_hash = models.CharField(_("SHA-256 of the arguments"), max_length=64, blank=True)
    verdict = models.CharField(_("verdict"), max_length=8, blank=True)
    reason = models.CharField(_("reason"), max_length=500, blank=True)
    approved_by_id = models.UUIDField(_("decided by"), null=True)
    status = models.CharField(_("status"), max_length=12, blank=True)
    duration_ms = models.PositiveIntegerField(_("duration (ms)"), null=True)
    details = models.JSONField(_("details"), default=dict)  # never a secret and nothing personal: names of fields, ids
    body = EncryptedJSONField(_("contents"), null=True)  # {arguments, result}, where the organization keeps them

    objects = TenantQuerySet.as_manager()

    class Meta:
        verbose_name = _("audit entry")
        verbose_name_plural = _("audit")
        ordering = ["-at", "-id"]
        indexes = [
            models.Index(fields=["organization_id", "-at", "-id"], name="audit_of_organization"),
            models.Index(fields=["organization_id", "actor_id", "-at"], name="audit_of_person"),
        ]

    def __str__(self) -> str:
        return f"{self.action_label} at {self.at:%Y-%m-%d %H:%M:%S} UTC"

    @property
    def action_label(self) -> str:
        """What was done, in words for people."""
        return str(AuditAction(self.action).label) if self.action in AuditAction else self.action
