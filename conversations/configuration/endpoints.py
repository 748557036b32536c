"""Model endpoints and their models, of a configuration file."""

from __future__ import annotations

from collections.abc import Mapping

from agents.definitions import endpoint_findings
from agents.models import ModelEndpoint, ModelProfile
from conversations.configuration import schema
from conversations.configuration.reconciling import Scope, Surplus, wanted_values

ENDPOINT_FIELDS = (
    "name",
    "base_url",
    "api_key",
    "headers",
    "extra_body",
    "dialect",
    "connect_timeout",
    "first_token_timeout",
    "chunk_timeout",
    "retries",
    "max_concurrency",
    "enabled",
)
MODEL_FIELDS = (
    "title",
    "context",
    "tools",
    "parallel_tools",
    "images",
    "reasoning",
    "stream",
    "stream_options",
    "max_tokens_parameter",
    "temperature_allowed",
    "system_role",
    "dialect",
    "return_reasoning",
    "prefill",
    "alternate_roles",
    "drop_tools_on_close",
)


def apply_endpoints(scope: Scope, section: Mapping[str, schema.Endpoint]) -> Surplus:
    stored = {row.slug: row for row in ModelEndpoint.objects.as_system().filter(organization=scope.organization)}
    models = ModelProfile.objects.as_system().filter(organization=scope.organization).select_related("endpoint")
    scope.profiles.update((f"{model.endpoint.slug}/{model.slug}", model) for model in models)
    path = (*scope.path, "endpoints")
    surplus: Surplus = []
    for slug, endpoint in section.items():
        row = scope.reconciler.put(
            (*path, slug),
            stored.get(slug),
            ModelEndpoint(organization=scope.organization, slug=slug),
            wanted_values(ModelEndpoint, endpoint, ENDPOINT_FIELDS),
            endpoint_findings,
        )
        if row is None:
            scope.broken.update(("models", f"{slug}/{model}") for model in endpoint.models)
            continue
        surplus += _apply_models(scope, row, endpoint.models)
    return surplus + [((*path, slug), row) for slug, row in stored.items() if slug not in section]


def _apply_models(scope: Scope, endpoint: ModelEndpoint, section: Mapping[str, schema.Model]) -> Surplus:
    path = (*scope.path, "endpoints", endpoint.slug, "models")
    stored = {model.slug: model for model in scope.profiles.values() if model.endpoint_id == endpoint.pk}
    for slug, model in section.items():
        prices = model.prices or schema.Prices()
        wanted = {
            "name": slug if model.name is None else model.name,
            **wanted_values(ModelProfile, model, MODEL_FIELDS),
            "input_price": prices.input,
            "output_price": prices.output,
        }
        new = ModelProfile(organization=scope.organization, endpoint=endpoint, slug=slug)
        row = scope.reconciler.put((*path, slug), stored.get(slug), new, wanted)
        name = f"{endpoint.slug}/{slug}"
        if row is None:
            scope.broken.add(("models", name))
        else:
            scope.profiles[name] = row
    return [((*path, slug), row) for slug, row in stored.items() if slug not in section]
