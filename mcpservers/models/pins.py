"""What servers said that their tools are, whose list has which version of them, and what was accepted of it."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from django.db import models
from django.db.models import Exists, OuterRef, Q
from django.utils.translation import gettext_lazy as _

from accounts.models import User
from mcpservers.models.servers import MCPServer

if TYPE_CHECKING:
    from django_stubs_ext.db.models.manager import RelatedManager


class ToolVersion(models.Model):
    """One definition of a tool, as its server sent it: what is accepted or rejected, for everybody."""

    class Decision(models.TextChoices):
        NONE = "", _("not decided")
        ACCEPTED = "accepted", _("accepted")
        REJECTED = "rejected", _("rejected")

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    server = models.ForeignKey(MCPServer, on_delete=models.CASCADE, related_name="tool_versions")
    tool = models.CharField(max_length=200)  # its name; of a longer one the beginning and a hash
    hash = models.CharField(max_length=64)  # SHA-256 over the canonical JSON of `definition`
    definition = models.JSONField()  # {name, title, description, inputSchema, outputSchema, annotations}, if present
    flags = models.JSONField(default=list)  # [{kind, message, excerpt, severe}]
    name_skeleton = models.CharField(max_length=200, blank=True)  # what the name looks like, to find a double
    title_skeleton = models.CharField(max_length=200, blank=True)
    decision = models.CharField(max_length=8, choices=Decision.choices, default=Decision.NONE, blank=True)
    decided_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    decided_at = models.DateTimeField(null=True, blank=True)  # with nobody in `decided_by`: at first use
    first_seen_at = models.DateTimeField(auto_now_add=True)

    if TYPE_CHECKING:
        sightings: RelatedManager[ToolSighting]

    class Meta:
        constraints = [models.UniqueConstraint(fields=["server", "hash"], name="one_version_per_hash")]
        indexes = [
            models.Index(fields=["server", "tool"], name="version_tool"),
            models.Index(fields=["name_skeleton"], name="version_name_skeleton"),
            models.Index(fields=["title_skeleton"], name="version_title_skeleton"),
        ]

    def __str__(self) -> str:
        return f"{self.tool} ({self.hash[:8]})"


class ToolView(models.Model):
    """Whose list of a server's tools it is: one account's, or (`owner_key` "") the organization's own."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    server = models.ForeignKey(MCPServer, on_delete=models.CASCADE, related_name="tool_views")
    owner_key = models.CharField(max_length=80, blank=True)
    user = models.ForeignKey(User, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    settled_at = models.DateTimeField(null=True, blank=True)  # its first whole list; tools that come later are new
    revision = models.PositiveIntegerField(default=0)  # counts changes of its sightings, and decisions on them
    list_revision = models.BigIntegerField(default=0)  # of the catalogue's list that `listed` is of

    class Meta:
        constraints = [models.UniqueConstraint(fields=["server", "owner_key"], name="one_view_per_owner")]


class ToolSighting(models.Model):
    """A version in one view. `accepted` holds for this view alone; a decision on the version goes before it."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    view = models.ForeignKey(ToolView, on_delete=models.CASCADE, related_name="sightings")
    version = models.ForeignKey(ToolVersion, on_delete=models.CASCADE, related_name="sightings")
    accepted = models.BooleanField(default=False)
    listed = models.BooleanField(default=True)  # the newest list of this view has it

    class Meta:
        constraints = [models.UniqueConstraint(fields=["view", "version"], name="one_sighting_per_version")]

    @property
    def is_accepted(self) -> bool:
        """Whether the version is accepted in this view. Needs the version loaded."""
        return is_accepted(self.version.decision, self.accepted)


def is_accepted(decision: str, accepted: bool) -> bool:
    """The rule: what was decided of a version holds for everybody, else what the view's first use accepted."""
    return decision == ToolVersion.Decision.ACCEPTED or (not decision and accepted)


def accepted_somewhere() -> Q:
    """The same rule for a query of versions: those that are accepted in some view."""
    used = ToolSighting.objects.filter(version=OuterRef("pk"), accepted=True)
    return Q(decision=ToolVersion.Decision.ACCEPTED) | Q(Exists(used), decision=ToolVersion.Decision.NONE)
