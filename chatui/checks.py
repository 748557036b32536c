"""Numbered start-up checks: a misconfiguration is an error that says what to set.

`manage.py check` runs those that hold everywhere; `manage.py check --deploy` all of them, with what production needs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.apps import AppConfig, apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import DatabaseError, connection, models
from django.db.models.functions import Cast
from django.http.request import validate_host

from chatui.fields import DecryptionError, EncryptedJSONField, EncryptedTextField, decrypt

Configs = Sequence[AppConfig] | None
DEVELOPMENT_KEY = "insecure-development-key-that-check-deploy-refuses"
# What a server's definition must never be able to name (`${ENV}` comes from MCP_ENV_ALLOWLIST only).
OWN_SECRETS = frozenset({"SECRET_KEY", "ENCRYPTION_KEYS", "DATABASE_URL", "REDIS_URL", "EMAIL_URL", "OPENAI_API_KEY"})


# --- Everywhere ---------------------------------------------------------------------------------------------------


@register(Tags.security)
def check_keys(app_configs: Configs, **kwargs: Any) -> list[CheckMessage]:
    if all(str(key).strip() for key in settings.ENCRYPTION_KEYS):
        return []
    hint = "Remove the stray comma from ENCRYPTION_KEYS: an empty key would encrypt every secret with nothing."
    return [Error("ENCRYPTION_KEYS holds an empty key.", hint=hint, id="chatui.E002")]


@register(Tags.security)
def check_base_url(app_configs: Configs, **kwargs: Any) -> list[CheckMessage]:
    parts = urlsplit(settings.BASE_URL)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path or parts.query or parts.fragment:
        hint = "Set BASE_URL to scheme, host and port alone, for example https://chat.example.org."
        return [Error(f"BASE_URL is not an origin: {settings.BASE_URL!r}.", hint=hint, id="chatui.E003")]
    if not validate_host(parts.hostname, settings.ALLOWED_HOSTS):
        hint = f"Add {parts.hostname} to ALLOWED_HOSTS. Without it every page of {settings.BASE_URL} is refused."
        return [Error("The host of BASE_URL is not in ALLOWED_HOSTS.", hint=hint, id="chatui.E004")]
    return []


@register(Tags.files)
def check_directories(app_configs: Configs, **kwargs: Any) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    for name, directory in (("VAR_DIR", settings.VAR_DIR), ("MEDIA_ROOT", settings.MEDIA_ROOT)):
        if problem := _unwritable(Path(directory)):
            hint = f"Set {name} to a directory that the server's user may write to, or give it that right."
            found.append(Error(f"{name}: {problem}.", hint=hint, id="chatui.E005"))
    return found


def _unwritable(directory: Path) -> str:
    """Why nothing can be written into `directory` (which need not exist yet); empty when it can."""
    existing = directory
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        return f"{existing} is not a directory"
    return "" if os.access(existing, os.W_OK | os.X_OK) else f"{existing} is not writable"


@register(Tags.security)
def check_environment_allowlist(app_configs: Configs, **kwargs: Any) -> list[CheckMessage]:
    exposed = sorted(OWN_SECRETS.intersection(settings.MCP_ENV_ALLOWLIST))
    if not exposed:
        return []
    hint = "Remove it: what is listed there is sent to MCP servers whose definitions name it."
    return [Error(f"MCP_ENV_ALLOWLIST lists {', '.join(exposed)}.", hint=hint, id="chatui.E006")]


# --- In production ------------------------------------------------------------------------------------------------


@register(Tags.security, deploy=True)
def check_secrets_are_set(app_configs: Configs, **kwargs: Any) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    if settings.SECRET_KEY == DEVELOPMENT_KEY:
        hint = "Set SECRET_KEY to a long random text, for example from `openssl rand -base64 48`."
        found.append(Error("SECRET_KEY is the one of development.", hint=hint, id="chatui.E001"))
    if not settings.ENCRYPTION_KEYS:
        hint = "Set ENCRYPTION_KEYS, for example from `openssl rand -base64 32`; without it secrets hang on SECRET_KEY."
        found.append(Error("ENCRYPTION_KEYS is not set.", hint=hint, id="chatui.E002"))
    return found


@register(Tags.security, deploy=True)
def check_addresses(app_configs: Configs, **kwargs: Any) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    if not settings.BASE_URL.startswith("https://"):
        hint = "Set BASE_URL to the https address that people use; cookies are then sent over TLS only."
        found.append(Error(f"BASE_URL is not https: {settings.BASE_URL!r}.", hint=hint, id="chatui.E007"))
    elif settings.SECURE_PROXY_SSL_HEADER is None:
        hint = "Set TRUST_PROXY=true if a proxy of yours ends TLS and sets X-Forwarded-Proto and X-Forwarded-For."
        found.append(Warning("TRUST_PROXY is not set although BASE_URL is https.", hint=hint, id="chatui.W001"))
    if "*" in settings.ALLOWED_HOSTS:
        hint = "List the hosts by name: websockets from every page of the web would be let in."
        found.append(Error("ALLOWED_HOSTS holds '*'.", hint=hint, id="chatui.E008"))
    if settings.EMAIL_BACKEND.endswith(("console.EmailBackend", "dummy.EmailBackend")):
        hint = "Set EMAIL_URL, for example smtp+tls://user:password@mail.example.org:587; until then no mail is sent."
        found.append(Warning("EMAIL_URL is not set.", hint=hint, id="chatui.W002"))
    return found


@register(Tags.database, deploy=True)
def check_processes(app_configs: Configs, **kwargs: Any) -> list[CheckMessage]:
    sqlite = connection.vendor == "sqlite"
    if sqlite and settings.REDIS_URL:
        hint = "Set DATABASE_URL to a PostgreSQL database, or unset REDIS_URL and run one process."
        return [Error("Several processes (REDIS_URL) cannot share SQLite.", hint=hint, id="chatui.E009")]
    if sqlite:
        hint = "Set DATABASE_URL (PostgreSQL) and REDIS_URL when one process is no longer enough."
        return [Warning("SQLite serves one process.", hint=hint, id="chatui.W003")]
    if not settings.REDIS_URL:
        hint = "Set REDIS_URL before a second process is started: without it a process knows only its own turns."
        return [Warning("REDIS_URL is not set: exactly one server process.", hint=hint, id="chatui.W004")]
    return []


@register(Tags.caches, deploy=True)
def check_redis(app_configs: Configs, **kwargs: Any) -> list[CheckMessage]:
    if not settings.REDIS_URL:
        return []
    import redis

    try:
        client = redis.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=3, socket_timeout=3)
        try:
            client.ping()
        finally:
            client.close()
    except (redis.RedisError, ValueError, OSError) as error:
        # The class alone: the message may hold the password of the URL.
        problem = f"Redis at REDIS_URL does not answer ({type(error).__name__})."
        return [Error(problem, hint="Start Redis, or correct REDIS_URL.", id="chatui.E010")]
    return []


@register(Tags.database, deploy=True)
def check_database(app_configs: Configs, **kwargs: Any) -> list[CheckMessage]:
    from django.db.migrations.executor import MigrationExecutor

    try:
        executor = MigrationExecutor(connection)
        missing = len(executor.migration_plan(executor.loader.graph.leaf_nodes()))
    except DatabaseError as error:
        problem = f"The database at DATABASE_URL does not answer ({type(error).__name__})."
        return [Error(problem, hint="Start the database, or correct DATABASE_URL.", id="chatui.E011")]
    if missing:
        hint = "Run `manage.py migrate` before this version is started."
        return [Error(f"{missing} migrations are not applied.", hint=hint, id="chatui.E012")]
    return list(_undecryptable())


def _undecryptable() -> Iterator[CheckMessage]:
    """An error per encrypted column of which a stored value fits no key: looked at in its newest row."""
    for model in apps.get_models():
        for field in model._meta.local_concrete_fields:
            if not isinstance(field, EncryptedTextField | EncryptedJSONField):
                continue
            rows = model._base_manager.annotate(stored=Cast(field.name, models.TextField())).order_by("-pk")
            stored = rows.exclude(stored=None).exclude(stored__in=("", "{}", "[]")).values_list("stored", flat=True)
            try:
                if (text := stored.first()) is not None and not field.is_clear(text):
                    decrypt(text)
            except DecryptionError:
                hint = "Add the key that it was encrypted with to ENCRYPTION_KEYS; see `manage.py rotate_keys`."
                label = f"{model._meta.label}.{field.name}"
                yield Error(f"{label} holds a secret that no key decrypts.", hint=hint, id="chatui.E013")
