"""Model endpoints, the profiles of their models, agents, and what an agent may use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.utils.translation import gettext_lazy as _

from accounts.models import slug_validator
from accounts.rule_fields import RulesField
from accounts.tenancy import TenantModel, TenantQuerySet
from chatui.fields import EncryptedJSONField, EncryptedTextField
from mcpservers.models import AbstractGrant, MCPServer, one_grantee

if TYPE_CHECKING:
    from django_stubs_ext.db.models.manager import RelatedManager


class Dialect(models.TextChoices):
    """How an endpoint deviates; also which schema reductions its tools get."""

    OPENAI = "openai", "OpenAI"
    OPENAI_STRICT = "openai-strict", _("OpenAI, strict schemas")
    GEMINI = "gemini", "Gemini"
    MISTRAL = "mistral", "Mistral"
    LLAMA_CPP = "llama.cpp", "llama.cpp"
    PERMISSIVE = "permissive", _("Permissive (vLLM, Ollama, others)")


class ModelEndpoint(TenantModel):
    """Any OpenAI-compatible Chat Completions endpoint."""

    slug = models.CharField(max_length=64, validators=[slug_validator])
    name = models.CharField(max_length=120, blank=True)
    base_url = models.CharField(max_length=500)
    api_key = EncryptedTextField(blank=True, default="")
    headers = EncryptedJSONField(default=dict, blank=True)
    extra_body = models.JSONField(default=dict, blank=True)
    dialect = models.CharField(max_length=16, choices=Dialect.choices, default=Dialect.OPENAI)
    connect_timeout = models.FloatField(default=10, validators=[MinValueValidator(0.1)])
    first_token_timeout = models.FloatField(default=120, validators=[MinValueValidator(0.1)])
    chunk_timeout = models.FloatField(default=120, validators=[MinValueValidator(0.1)])
    retries = models.PositiveSmallIntegerField(default=2, validators=[MaxValueValidator(10)])
    max_concurrency = models.PositiveIntegerField(null=True, blank=True)
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantQuerySet.as_manager()

    if TYPE_CHECKING:
        models: RelatedManager[ModelProfile]

    class Meta:
        ordering = ["slug"]
        constraints = [models.UniqueConstraint(fields=["organization", "slug"], name="one_endpoint_per_slug")]

    def __str__(self) -> str:
        return self.name or self.slug


class ModelProfile(TenantModel):
    """One model of an endpoint and what it can do. An empty choice takes the dialect's preset."""

    endpoint = models.ForeignKey(ModelEndpoint, on_delete=models.CASCADE, related_name="models")
    slug = models.CharField(max_length=64, validators=[slug_validator])
    name = models.CharField(max_length=200, help_text=_("As the endpoint calls it."))
    title = models.CharField(max_length=120, blank=True)
    context = models.PositiveIntegerField(default=128_000)
    tools = models.BooleanField(default=True)
    parallel_tools = models.BooleanField(default=True)
    images = models.BooleanField(default=False)
    reasoning = models.BooleanField(default=False)
    stream = models.BooleanField(default=True)
    stream_options = models.BooleanField(default=True)
    max_tokens_parameter = models.CharField(
        max_length=24,
        choices=[("max_tokens", "max_tokens"), ("max_completion_tokens", "max_completion_tokens")],
        default="max_tokens",
    )
    temperature_allowed = models.BooleanField(default=True)
    system_role = models.CharField(
        max_length=12, choices=[("system", "system"), ("developer", "developer"), ("user", "user")], default="system"
    )
    dialect = models.CharField(max_length=16, choices=Dialect.choices, blank=True)
    return_reasoning = models.BooleanField(default=False)
    prefill = models.BooleanField(default=False)
    alternate_roles = models.BooleanField(default=False)
    drop_tools_on_close = models.BooleanField(default=False)
    input_price = models.DecimalField(max_digits=12, decimal_places=6, null=True, blank=True)  # per million tokens
    output_price = models.DecimalField(max_digits=12, decimal_places=6, null=True, blank=True)

    objects = TenantQuerySet.as_manager()

    class Meta:
        ordering = ["endpoint", "slug"]
        constraints = [models.UniqueConstraint(fields=["endpoint", "slug"], name="one_model_per_slug")]

    def __str__(self) -> str:
        return f"{self.endpoint}/{self.title or self.slug}"


class Agent(TenantModel):
    slug = models.CharField(max_length=64, validators=[slug_validator])
    name = models.CharField(max_length=120)
    description = models.TextField(blank=True)
    model = models.ForeignKey(ModelProfile, on_delete=models.RESTRICT, related_name="agents")
    other_models = models.ManyToManyField(
        ModelProfile,
        related_name="+",
        blank=True,
        help_text=_("With which people may have a question answered again."),
    )
    instructions = models.TextField(blank=True)
    starters = models.JSONField(default=list, blank=True)  # [question]
    max_rounds = models.PositiveSmallIntegerField(
        null=True, blank=True, validators=[MinValueValidator(1), MaxValueValidator(100)]
    )
    temperature = models.FloatField(null=True, blank=True, validators=[MinValueValidator(0), MaxValueValidator(2)])
    top_p = models.FloatField(null=True, blank=True, validators=[MinValueValidator(0), MaxValueValidator(1)])
    max_output_tokens = models.PositiveIntegerField(null=True, blank=True)
    reasoning_effort = models.CharField(max_length=16, blank=True)
    rules = RulesField(default=list, blank=True)  # [{tool: glob over "server__tool", do}]
    user_servers = models.BooleanField(default=False)
    enabled = models.BooleanField(default=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    objects = TenantQuerySet.as_manager()

    if TYPE_CHECKING:
        servers: RelatedManager[AgentServer]
        grants: RelatedManager[AgentGrant]

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["organization", "slug"], name="one_agent_per_slug")]

    def __str__(self) -> str:
        return self.name


class AgentServer(models.Model):
    """A server that an agent uses; `tools` are globs over the server's tool names, empty = all."""

    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="servers")
    server = models.ForeignKey(MCPServer, on_delete=models.CASCADE, related_name="+")
    tools = models.JSONField(default=list, blank=True)
    position = models.PositiveSmallIntegerField(default=0)

    class Meta:
        ordering = ["position", "pk"]
        constraints = [models.UniqueConstraint(fields=["agent", "server"], name="an_agent_has_a_server_once")]

    def __str__(self) -> str:
        return str(self.server)


class AgentGrant(AbstractGrant):
    agent = models.ForeignKey(Agent, on_delete=models.CASCADE, related_name="grants")

    class Meta:
        constraints = [one_grantee()]
