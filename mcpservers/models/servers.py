"""MCP server definitions, who may use them, users' variables, and the stored catalogue."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from accounts.models import Group, User
from accounts.rule_fields import RulesField
from accounts.tenancy import TenantModel, TenantQuerySet
from chatui.fields import EncryptedJSONField

if TYPE_CHECKING:
    from django_stubs_ext.db.models.manager import RelatedManager

    from accounts.actors import Actor

# No underscore: `__` separates the server from the tool in exposed names.
server_slug_validator = RegexValidator(
    r"\A[a-z0-9](?:[a-z0-9-]{0,22}[a-z0-9])?\Z", _("Use a-z, 0-9, inner hyphens; at most 24.")
)

# Keys of `MCPServer.oauth` that decide whose tokens they are: a change of one of them drops what was linked.
OAUTH_BOUND = ("grant", "client_id", "issuer", "authorization_endpoint", "token_endpoint", "resource", "obo")


class Transport(models.TextChoices):
    HTTP = "http", _("Streamable HTTP, else SSE")
    STREAMABLE_HTTP = "streamable-http", _("Streamable HTTP")
    SSE = "sse", _("SSE (deprecated transport)")
    STDIO = "stdio", _("stdio (a local process)")


# Fields of a server that pages show, and by which nothing is done: who offers or calls its tools does not read them.
FOR_PEOPLE = ("description", "last_error", "last_connected_at", "created_at", "updated_at")

# Begins the slugs of people's own servers, and those of no others: what one person sees has no name twice.
OWN_PREFIX = "my-"


class MCPServerQuerySet(TenantQuerySet):
    def visible_to(self, actor: Actor) -> Self:
        """The organization's servers, and the actor's own."""
        return super().visible_to(actor).filter(Q(owner=None) | Q(owner=actor.user_id))


class MCPServer(TenantModel):
    """A definition: what to connect to and how. The *effective definition* is what its hash covers.

    With an `owner` it is a server of that person, who made it and whom alone it serves: `mcpservers.own`.
    """

    class Trust(models.TextChoices):
        FIRST_USE = "first-use", _("Trust tools when first seen")
        REVIEWED = "reviewed", _("An admin accepts each tool")

    class NewTools(models.TextChoices):
        BY_TRUST = "", _("As the trust says")
        ACCEPT = "accept", _("Accept them when first seen, unless something about them is suspicious")
        REVIEW = "review", _("An admin accepts each of them")

    owner = models.ForeignKey(User, on_delete=models.CASCADE, null=True, blank=True, editable=False, related_name="+")
    slug = models.CharField(max_length=24, validators=[server_slug_validator])
    title = models.CharField(max_length=120)
    description = models.TextField(blank=True)
    transport = models.CharField(max_length=16, choices=Transport.choices, default=Transport.HTTP)
    url = models.CharField(max_length=2000, blank=True)
    command = models.CharField(max_length=500, blank=True)
    args = models.JSONField(default=list, blank=True)
    headers = EncryptedJSONField(default=dict, blank=True)
    env = EncryptedJSONField(default=dict, blank=True)
    variables = models.JSONField(default=dict, blank=True)  # {NAME: {title, description, sensitive}}
    oauth = EncryptedJSONField(null=True, blank=True)
    timeout = models.FloatField(default=60, validators=[MinValueValidator(1), MaxValueValidator(600)])
    connect_timeout = models.FloatField(default=30, validators=[MinValueValidator(1), MaxValueValidator(120)])
    trust = models.CharField(max_length=16, choices=Trust.choices, default=Trust.FIRST_USE)
    new_tools = models.CharField(max_length=8, choices=NewTools.choices, default=NewTools.BY_TRUST, blank=True)
    read_only = models.JSONField(default=list, blank=True)  # globs of tools that an admin says need no approval
    rules = RulesField(default=list, blank=True)  # [{tool: glob, do: allow|ask|deny}], first match decides
    use_instructions = models.BooleanField(default=False)
    enabled = models.BooleanField(default=True)
    barred = models.BooleanField(
        _("switched off by an administrator"),
        default=False,
        help_text=_("Of a person's own server: its owner cannot switch it on again before this is taken away."),
    )
    revision = models.PositiveIntegerField(default=1, editable=False)
    # What the last connection learnt, so that the next one need not probe again.
    era = models.JSONField(default=dict, blank=True, editable=False)  # {transport, mode, protocol_version, discover}
    # The binding under which it was learnt that people must sign in; another address has to be asked anew.
    needs_oauth = models.CharField(max_length=32, blank=True, default="", editable=False)
    # Who answers for calls on behalf of users (`oauth.obo`): a user's id, "operator", or "" where nobody does.
    obo_author = models.CharField(max_length=40, blank=True, default="", editable=False)
    last_error = models.TextField(blank=True, editable=False)
    last_connected_at = models.DateTimeField(null=True, blank=True, editable=False)
    # Where a session has asked a person during a call (see `place`): another place has to ask first.
    asked_at = models.CharField(max_length=32, blank=True, default="", editable=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = MCPServerQuerySet.as_manager()

    if TYPE_CHECKING:
        grants: RelatedManager[ServerGrant]

    class Meta:
        verbose_name = "MCP server"
        ordering = ["title"]
        constraints = [
            models.UniqueConstraint(
                fields=["organization", "slug"], condition=Q(owner=None), name="one_server_per_slug"
            ),
            models.UniqueConstraint(
                fields=["organization", "owner", "slug"],
                condition=Q(owner__isnull=False),
                name="one_own_server_per_slug",
            ),
            # A process on the operator's machine is nobody's to define.
            models.CheckConstraint(
                condition=Q(owner=None) | ~Q(transport="stdio"), name="own_servers_are_no_processes"
            ),
        ]

    def __str__(self) -> str:
        return self.title

    @classmethod
    def from_db(cls, db: str | None, field_names: Collection[str], values: Collection[Any], **options: Any) -> Self:
        # Where some are left out, Django looks for each field in the list of those that are there, at every row.
        return super().from_db(db, frozenset(field_names), values, **options)

    @property
    def reviews_new_tools(self) -> bool:
        """Whether a tool that was not in the first list waits for an admin."""
        return (self.new_tools or ("review" if self.trust == self.Trust.REVIEWED else "accept")) == "review"

    def definition(self) -> dict[str, Any]:
        """The effective definition: everything that decides what is connected to, and as whom."""
        return {
            "transport": self.transport,
            "url": self.url,
            "command": self.command,
            "args": self.args,
            "headers": self.headers,
            "env": self.env,
            "variables": self.variables,
            "oauth": {} if self.oauth is None and self.signs_in else self.oauth,
            **({"owner": str(self.owner_id)} if self.owner_id is not None else {}),
        }

    @property
    def allowances(self) -> tuple[str, ...] | None:
        """For `chatui.netguard`: a person's own server is at a public address, whatever the operator allows."""
        return () if self.owner_id is None else None

    @property
    def host(self) -> str:
        """Host and port that are connected to; "" for a local process."""
        try:
            return urlsplit(self.url).netloc.rpartition("@")[2]
        except ValueError:
            return ""

    @property
    def signs_in(self) -> bool:
        """Whether people (or the organization) need an account there: by the definition, or as it was learnt."""
        return self.oauth is not None or (bool(self.needs_oauth) and self.needs_oauth == self.oauth_binding())

    @property
    def asks_people(self) -> bool:
        """Whether its sessions ask during a call. They do not say during which, so its calls go one at a time."""
        return bool(self.asked_at) and self.asked_at == self.place()

    def place(self) -> str:
        """Hash of what is connected to, whoever does it and with whatever values: 32 hexadecimal digits."""
        text = json.dumps([self.transport, self.url, self.command, self.args])
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def oauth_binding(self) -> str:
        """Hash of what a token may be sent to and who issues it, 32 hex digits; scopes and secrets may change."""
        scheme, slashes, rest = self.url.partition("://")
        origin, slash, path = re.split(r"[?#]", rest, maxsplit=1)[0].partition("/")
        oauth = self.oauth or {}
        bound = {key: oauth[key] for key in OAUTH_BOUND if oauth.get(key)}
        text = json.dumps([scheme.lower() + slashes + origin.lower() + slash + path, bound], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def definition_hash(self) -> str:
        """SHA-256 over the canonical JSON of `definition()`, 32 hexadecimal digits."""
        text = json.dumps(self.definition(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def one_grantee() -> models.CheckConstraint:
    return models.CheckConstraint(
        condition=Q(whole_organization=True, group=None, user=None)
        | Q(whole_organization=False, group__isnull=False, user=None)
        | Q(whole_organization=False, group=None, user__isnull=False),
        name="%(class)s_names_one_grantee",
    )


class AbstractGrant(models.Model):
    """Who is given (or denied) something: the whole organization, a group, or a user. Deny wins."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    whole_organization = models.BooleanField(default=False)
    group = models.ForeignKey(Group, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    user = models.ForeignKey(User, on_delete=models.CASCADE, null=True, blank=True, related_name="+")
    deny = models.BooleanField(default=False)

    class Meta:
        abstract = True


class ServerGrant(AbstractGrant):
    """A grant on a server; with `tool` (a glob) on some of its tools."""

    server = models.ForeignKey(MCPServer, on_delete=models.CASCADE, related_name="grants")
    tool = models.CharField(max_length=200, blank=True)

    class Meta:
        constraints = [one_grantee()]


class UserVariables(models.Model):
    """One user's values for a server's declared variables."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    server = models.ForeignKey(MCPServer, on_delete=models.CASCADE, related_name="user_variables")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    values = EncryptedJSONField(default=dict)
    version = models.PositiveIntegerField(default=1)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name_plural = "user variables"
        constraints = [models.UniqueConstraint(fields=["server", "user"], name="one_set_of_variables_per_user")]


class CatalogueEntry(models.Model):
    """A server's tool list as discovered: addressed by server, definition hash and, for user scope, its owner."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    server = models.ForeignKey(MCPServer, on_delete=models.CASCADE, related_name="catalogue_entries")
    definition_hash = models.CharField(max_length=32)
    owner_key = models.CharField(max_length=64, blank=True)  # "" for app scope, else the user's id
    revision = models.BigIntegerField(default=0)  # taken before the fetch: a late writer never overwrites a newer list
    complete = models.BooleanField(default=True)
    tools = models.JSONField(default=list)  # as the server sent them
    warnings = models.JSONField(default=list)  # [{tool, message}], quarantined tools among them
    instructions = models.TextField(blank=True)
    fetched_at = models.DateTimeField()

    class Meta:
        verbose_name_plural = "catalogue entries"
        constraints = [
            models.UniqueConstraint(fields=["server", "definition_hash", "owner_key"], name="one_entry_per_address"),
        ]
