"""What links people (and organizations) to MCP servers: accounts, our clients, attempts, discovered metadata."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import F, Q
from django.db.models.signals import post_save
from django.dispatch import receiver
from django.utils.translation import gettext_lazy as _

from accounts.models import User
from accounts.tenancy import TenantModel, TenantQuerySet
from chatui.fields import EncryptedJSONField, EncryptedTextField
from mcpservers.models.servers import MCPServer


class OAuthClient(TenantModel):
    """Us as a client of one authorization server, for one MCP server. Its credentials never go to another issuer."""

    class Source(models.TextChoices):
        CONFIGURED = "configured", _("Entered by an admin")
        METADATA = "metadata", _("Client ID metadata document")
        DYNAMIC = "dynamic", _("Dynamic registration")

    server = models.ForeignKey(MCPServer, on_delete=models.CASCADE, related_name="oauth_clients")
    issuer = models.CharField(max_length=500)
    source = models.CharField(max_length=16, choices=Source.choices)
    client_id = models.TextField()
    # {client_secret, registration_access_token}; a configured client's stay in `MCPServer.oauth`
    secrets = EncryptedJSONField(default=dict, blank=True)
    auth_method = models.CharField(max_length=32, default="none")  # RFC 7591, token_endpoint_auth_method
    registration = models.JSONField(default=dict, blank=True)  # {redirect_uri, secret_expires_at, management_uri}
    created_at = models.DateTimeField(auto_now_add=True)

    objects = TenantQuerySet.as_manager()

    class Meta:
        verbose_name = "OAuth client"
        constraints = [
            models.UniqueConstraint(fields=["server", "issuer", "source"], name="one_client_per_issuer"),
        ]

    def __str__(self) -> str:
        return f"{self.get_source_display()} at {self.issuer}"


class _WithoutTokens(models.Manager["LinkedAccount"]):
    """What goes with something else goes even if nobody has the key to its tokens any more."""

    def get_queryset(self) -> models.QuerySet[LinkedAccount]:
        return super().get_queryset().defer("tokens")


class LinkedAccount(TenantModel):
    """An account at a server: a user's, or (without a user) the organization's machine account.

    A token is sent only to what `binding` covers (`MCPServer.oauth_binding`) and redeemed only at `issuer`.
    """

    class State(models.TextChoices):
        READY = "ready", _("Ready")
        RELINK = "relink", _("Needs to be linked again")

    server = models.ForeignKey(MCPServer, on_delete=models.CASCADE, related_name="linked_accounts")
    user = models.ForeignKey(User, on_delete=models.CASCADE, null=True, blank=True, related_name="linked_accounts")
    binding = models.CharField(max_length=32)
    issuer = models.CharField(max_length=500)
    resource = models.CharField(max_length=2000, blank=True)  # RFC 8707, byte for byte as it was asked for
    client = models.ForeignKey(OAuthClient, on_delete=models.SET_NULL, null=True, blank=True, related_name="accounts")
    name = models.CharField(max_length=200)
    subject = models.CharField(max_length=255, blank=True)  # who the server says it is; empty where it does not say
    scopes = models.JSONField(default=list, blank=True)
    is_default = models.BooleanField(default=False)
    # {access_token, refresh_token?, id_token?}; with a key of ours dpop_key, and token_type where that is DPoP
    tokens = EncryptedJSONField(default=dict, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)  # of the access token; null: not known
    refresh_at = models.DateTimeField(null=True, blank=True, db_index=True)  # when it is due, ahead of `expires_at`
    version = models.PositiveIntegerField(default=1)  # of the tokens: every write of them is guarded by it
    refreshing_until = models.DateTimeField(null=True, blank=True)  # somebody redeems the refresh token until then
    renewed_at = models.DateTimeField(null=True, blank=True)  # when the tokens came from a refresh
    state = models.CharField(max_length=8, choices=State.choices, default=State.READY)
    last_used_at = models.DateTimeField(null=True, blank=True)
    last_error = models.TextField(blank=True)  # for people, never with a secret
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantQuerySet.as_manager()
    related = _WithoutTokens()

    class Meta:
        ordering = ["created_at"]
        base_manager_name = "related"
        constraints = [
            models.UniqueConstraint(
                fields=["server", "user"], condition=Q(is_default=True, user__isnull=False), name="one_default_account"
            ),
            models.UniqueConstraint(fields=["server"], condition=Q(user=None), name="one_machine_account"),
            models.UniqueConstraint(
                fields=["server", "user", "issuer", "subject"],
                condition=~Q(subject=""),
                name="one_account_per_subject",
            ),
        ]

    def refresh_from_db(
        self, using: str | None = None, fields: Any = None, from_queryset: models.QuerySet[Any] | None = None
    ) -> None:
        """With the tokens, which the manager of related rows leaves out."""
        rows = LinkedAccount.objects.as_system() if from_queryset is None else from_queryset
        super().refresh_from_db(using, fields, rows)

    def __str__(self) -> str:
        return self.name

    def works(self, binding: str) -> bool:
        """Whether it can be used, as far as we know, with the definition of this `binding`."""
        return self.state == self.State.READY and self.binding == binding


class LinkAttempt(TenantModel):
    """One begun sign-in: for one use, ten minutes, this user and this browser. Only digests of both values are kept."""

    state_hash = models.CharField(max_length=64, unique=True, editable=False)
    browser_hash = models.CharField(max_length=64, editable=False)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    server = models.ForeignKey(MCPServer, on_delete=models.CASCADE, related_name="+")
    account = models.ForeignKey(LinkedAccount, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    client = models.ForeignKey(OAuthClient, on_delete=models.CASCADE, related_name="+")
    binding = models.CharField(max_length=32)
    metadata = models.JSONField(default=dict)  # the discovered metadata that the attempt began with
    verifier = EncryptedTextField()
    scopes = models.JSONField(default=list)
    redirect_uri = models.CharField(max_length=2000)
    return_to = models.CharField(max_length=2000, blank=True)
    expires_at = models.DateTimeField(db_index=True)
    used_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = TenantQuerySet.as_manager()


class OAuthDiscovery(TenantModel):
    """Where a server's accounts come from, as its metadata said (`mcpservers.oauth.discovery`); kept by its rules."""

    server = models.OneToOneField(MCPServer, on_delete=models.CASCADE, related_name="oauth_discovery")
    binding = models.CharField(max_length=32)
    document = models.JSONField(default=dict)
    fetched_at = models.DateTimeField()
    expires_at = models.DateTimeField()

    objects = TenantQuerySet.as_manager()

    class Meta:
        verbose_name = "OAuth metadata"
        verbose_name_plural = "OAuth metadata"


class SignInToken(models.Model):
    """The tokens of a person's sign-in to this product by OpenID Connect, for exchange on the person's behalf."""

    user = models.OneToOneField(User, on_delete=models.CASCADE, primary_key=True, related_name="+")
    provider = models.CharField(max_length=200)  # allauth's provider_id
    tokens = EncryptedJSONField(default=dict, blank=True)  # {access_token, refresh_token?}
    expires_at = models.DateTimeField(null=True, blank=True)
    version = models.PositiveIntegerField(default=1)
    refreshing_until = models.DateTimeField(null=True, blank=True)
    updated_at = models.DateTimeField(auto_now=True)


@receiver(post_save, sender=MCPServer, dispatch_uid="tokens follow no definition elsewhere")
def _drop_tokens_of_another_definition(instance: MCPServer, created: bool, **kwargs: Any) -> None:
    """A changed address or issuer ends what was linked before, whichever door the change came through."""
    fields = kwargs.get("update_fields")
    if created or (fields is not None and not {"url", "oauth"} & set(fields)):
        return
    LinkedAccount.objects.as_system().filter(server=instance).exclude(binding=instance.oauth_binding()).exclude(
        state=LinkedAccount.State.RELINK
    ).update(
        tokens={},
        state=LinkedAccount.State.RELINK,
        refresh_at=None,
        refreshing_until=None,
        version=F("version") + 1,
        last_error="The address of the server changed, so the sign-in to the old one was dropped.",
    )
