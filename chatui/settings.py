"""Every setting, read once from the environment (or `.env`); `docs/reference/settings.md` lists them."""

from pathlib import Path
from typing import Any

import django_stubs_ext
import environ

# Lets `ModelAdmin[Model]` and generic fields be written at run time as the type checker reads them.
django_stubs_ext.monkeypatch()

BASE_DIR = Path(__file__).resolve().parent.parent
env = environ.Env()
environ.Env.read_env(BASE_DIR / ".env")
VAR_DIR = Path(env.str("VAR_DIR", default=str(BASE_DIR / "var")))
environ.Env.read_env(VAR_DIR / "demo.env")  # what the demo made for itself, so that manage.py works with its data

DEBUG: bool = env.bool("DEBUG", default=False)
# Development and the demo make their own keys under var/; production must state them (checks.py, chatui.E001).
SECRET_KEY: str = env.str("SECRET_KEY", default="insecure-development-key-that-check-deploy-refuses")
ENCRYPTION_KEYS: list[str] = env.list("ENCRYPTION_KEYS", default=[])
ALLOWED_HOSTS: list[str] = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])
BASE_URL: str = env.str("BASE_URL", default="http://127.0.0.1:8000").rstrip("/")
HTTPS = BASE_URL.startswith("https://")

INSTALLED_APPS = [
    "daphne",
    "unfold.apps.BasicAppConfig",
    "unfold.contrib.filters",
    "chatui.admin_apps.ChatUIAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "allauth",
    "allauth.account",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "allauth.mfa",
    "accounts",
    "mcpservers",
    "agents",
    "conversations",
    "chatui",
]

MIDDLEWARE = [
    "chatui.health.health_middleware",
    "chatui.middleware.clean_query",
    "django.middleware.security.SecurityMiddleware",
    "chatui.middleware.PolicyMiddleware",
    "chatui.middleware.StaticFilesMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "allauth.account.middleware.AccountMiddleware",
]

ROOT_URLCONF = "chatui.urls"
ASGI_APPLICATION = "chatui.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# --- Database ---------------------------------------------------------------------------------------------------

DB_POOL_SIZE: int = env.int("DB_POOL_SIZE", default=16)


def database(url: str) -> dict[str, Any]:
    """Django's database settings for `url`, with what concurrent turns need on SQLite and on PostgreSQL."""
    config: dict[str, Any] = environ.Env.db_url_config(url)
    options = config.setdefault("OPTIONS", {})
    if config["ENGINE"].endswith("sqlite3"):
        # A deferred transaction that reads, then writes, fails at once with "database is locked".
        options.update(
            transaction_mode="IMMEDIATE",
            timeout=20,
            init_command="PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA temp_store=MEMORY",
        )
        config["CONN_MAX_AGE"] = None  # the threads that use it are few and stay
    else:
        options["pool"] = {"min_size": 2, "max_size": DB_POOL_SIZE, "timeout": 20}
        config["CONN_MAX_AGE"] = 0
        config["CONN_HEALTH_CHECKS"] = True
    return config


DATABASES = {"default": database(env.str("DATABASE_URL", default=f"sqlite:///{VAR_DIR / 'chatui.sqlite3'}"))}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- Redis, channels, caches, Celery ------------------------------------------------------------------------------

REDIS_URL: str = env.str("REDIS_URL", default="")
if REDIS_URL:
    CHANNEL_LAYERS: dict[str, Any] = {
        "default": {"BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer", "CONFIG": {"hosts": [REDIS_URL]}}
    }
    CACHES: dict[str, Any] = {
        "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": REDIS_URL}
    }
else:
    CHANNEL_LAYERS = {"default": {"BACKEND": "chatui.layers.LocalLayer"}}
    CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}

CELERY_BROKER_URL = REDIS_URL or "memory://"
CELERY_TASK_ALWAYS_EAGER = False
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_IGNORE_RESULT = True
CELERY_BEAT_SCHEDULE = {
    "prune audit": {"task": "accounts.tasks.prune_audit", "schedule": 3600.0},
    "tidy conversations": {"task": "conversations.tasks.tidy", "schedule": 900.0},
    "refresh catalogue": {"task": "mcpservers.tasks.refresh_catalogue", "schedule": 900.0},
    "refresh tokens": {"task": "mcpservers.tasks.refresh_tokens", "schedule": 60.0},
    "revoke tokens": {"task": "mcpservers.tasks.revoke_tokens", "schedule": 60.0},
}

# --- Accounts -----------------------------------------------------------------------------------------------------

AUTH_USER_MODEL = "accounts.User"
AUTHENTICATION_BACKENDS = [
    "django.contrib.auth.backends.ModelBackend",
    "allauth.account.auth_backends.AuthenticationBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
SIGNUP_OPEN: bool = env.bool("SIGNUP_OPEN", default=False)
ACCOUNT_ADAPTER = "accounts.adapters.AccountAdapter"
ACCOUNT_FORMS = {"login": "accounts.forms.LoginForm"}
ACCOUNT_LOGIN_METHODS = {"username", "email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "username*", "password1*", "password2*"]
# An open sign-up must not tell which addresses have an account: see accounts.stages.
ACCOUNT_EMAIL_VERIFICATION = "mandatory" if SIGNUP_OPEN else "optional"
ACCOUNT_LOGOUT_ON_GET = False
ACCOUNT_SESSION_REMEMBER = True
# Sign-in by OpenID Connect, with the organization's own provider.
OIDC_SERVER_URL: str = env.str("OIDC_SERVER_URL", default="")
SOCIALACCOUNT_PROVIDERS: dict[str, Any] = {"openid_connect": {"OAUTH_PKCE_ENABLED": True, "APPS": []}}
if OIDC_SERVER_URL:
    SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"].append(
        {
            "provider_id": "oidc",
            "name": env.str("OIDC_NAME", default="Single sign-on"),
            "client_id": env.str("OIDC_CLIENT_ID", default=""),
            "secret": env.str("OIDC_CLIENT_SECRET", default=""),
            "settings": {"server_url": OIDC_SERVER_URL},
        }
    )
    SOCIALACCOUNT_PROVIDERS["openid_connect"]["SCOPE"] = env.list("OIDC_SCOPES", default=["openid", "profile", "email"])
# An address that the provider has verified is the account's own; allauth ends a password that was set by another.
SOCIALACCOUNT_EMAIL_AUTHENTICATION = SOCIALACCOUNT_EMAIL_AUTHENTICATION_AUTO_CONNECT = True
SOCIALACCOUNT_STORE_TOKENS = False  # they would be kept in clear: see mcpservers.oauth.signins
MFA_SUPPORTED_TYPES = ["totp", "recovery_codes"]
ACCOUNT_EMAIL_SUBJECT_PREFIX = ""
# Without a proxy of ours, X-Forwarded-For is whatever a client writes and counts for nothing.
TRUST_PROXY: bool = env.bool("TRUST_PROXY", default=False)
ALLAUTH_TRUSTED_PROXY_COUNT = 1 if TRUST_PROXY else 0
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/accounts/login/"
vars().update(env.email_url("EMAIL_URL", default="consolemail://"))
EMAIL_TIMEOUT = 10
DEFAULT_FROM_EMAIL: str = env.str("DEFAULT_FROM_EMAIL", default="chatui@localhost")

# --- Language, files ----------------------------------------------------------------------------------------------

LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
TIME_ZONE = "UTC"
USE_I18N = True
USE_TZ = True
STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATIC_ROOT = VAR_DIR / "static"
MEDIA_ROOT = env.str("MEDIA_ROOT", default=str(VAR_DIR / "media"))
STATIC_HASHED: bool = env.bool("STATIC_HASHED", default=False)
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if STATIC_HASHED
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG
DATA_UPLOAD_MAX_MEMORY_SIZE = 12 * 2**20

# --- Security -----------------------------------------------------------------------------------------------------

SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SECURE_HSTS_SECONDS: int = env.int("SECURE_HSTS_SECONDS", default=31536000 if HTTPS else 0)
SECURE_SSL_REDIRECT = False  # the proxy in front of us does that
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if TRUST_PROXY else None
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
CSRF_TRUSTED_ORIGINS = [BASE_URL]
CSRF_FAILURE_VIEW = "chatui.error_pages.csrf_failure"
# HSTS for subdomains and preloading bind hosts that are not ours; the redirect to https is the proxy's.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W008", "security.W021"]

CONTENT_SECURITY_POLICY: dict[str, Any] = {
    "DIRECTIVES": {
        "default-src": ["'self'"],
        "script-src": ["'self'"],
        "style-src": ["'self'"],
        "style-src-attr": ["'unsafe-inline'"],  # math and diagrams
        "img-src": ["'self'", "data:", "blob:"],
        "connect-src": ["'self'"],
        "object-src": ["'none'"],
        "base-uri": ["'none'"],
        "form-action": ["'self'"],
        "frame-ancestors": ["'none'"],
    },
}
# The admin's theme computes expressions in attributes (Alpine) and sets inline styles.
CONTENT_SECURITY_POLICY_ADMIN: dict[str, Any] = {
    "DIRECTIVES": {
        **CONTENT_SECURITY_POLICY["DIRECTIVES"],
        "script-src": ["'self'", "'unsafe-eval'"],
        "style-src": ["'self'", "'unsafe-inline'"],
        "style-src-attr": ["'unsafe-inline'"],
    },
}

UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "chatui",
    "SITE_HEADER": "chatui",
    "SITE_SYMBOL": "forum",
    "SITE_URL": "/",
    "SHOW_BACK_BUTTON": True,
    "STYLES": ["chatui.admin_site.narrow_styles"],
    "SIDEBAR": {"show_search": False, "navigation": "chatui.admin_site.navigation"},
    "COLORS": {
        "primary": {  # the accent of the chat
            "50": "#f1f8f6",
            "100": "#e3efeb",
            "200": "#c3e0d8",
            "300": "#94cdbd",
            "400": "#6cc7b2",
            "500": "#2f9583",
            "600": "#0f6b5c",
            "700": "#0b5548",
            "800": "#0c443b",
            "900": "#0b3831",
            "950": "#06201c",
        },
    },
}

# --- Turns --------------------------------------------------------------------------------------------------------

AGENT_MAX_ROUNDS: int = env.int("AGENT_MAX_ROUNDS", default=10)
TURN = {
    "MAX_CALLS": env.int("TURN_MAX_CALLS", default=128),
    "MAX_SECONDS": env.float("TURN_MAX_SECONDS", default=1800.0),
    "MAX_PARALLEL_CALLS": env.int("TURN_MAX_PARALLEL_CALLS", default=8),
    "HEARTBEAT_SECONDS": env.float("TURN_HEARTBEAT_SECONDS", default=5.0),
    "STALE_SECONDS": env.float("TURN_STALE_SECONDS", default=20.0),
    "CHECKPOINT_SECONDS": env.float("TURN_CHECKPOINT_SECONDS", default=1.0),
    "COALESCE_SECONDS": env.float("TURN_COALESCE_SECONDS", default=0.018),
    "DRAIN_SECONDS": env.float("TURN_DRAIN_SECONDS", default=30.0),
    "PER_USER": env.int("TURNS_PER_USER", default=3),
    "FEED_STORED_SECONDS": env.float("FEED_STORED_SECONDS", default=600.0),
    "FEED_KEEP_SECONDS": env.float("FEED_KEEP_SECONDS", default=60.0),
    "QUESTION_SECONDS": env.float("QUESTION_SECONDS", default=86400.0),
    "LIVE_QUESTION_SECONDS": env.float("LIVE_QUESTION_SECONDS", default=600.0),
}
SOCKET = {
    "MAX_MESSAGE": 4 * 2**20,
    "MAX_TEXT": 2**20,
    "RECHECK_SECONDS": env.float("SOCKET_RECHECK_SECONDS", default=30.0),
}
RETENTION = {
    "PASSING_SECONDS": env.float("RETENTION_PASSING_SECONDS", default=86400.0),  # API requests, temporary chats
    "DELETED_SECONDS": env.float("RETENTION_DELETED_SECONDS", default=86400.0),  # within which a delete can be undone
}
AUDIT_DAYS: int = env.int("AUDIT_DAYS", default=365)  # of organizations that say nothing else
ATTACHMENT_MAX_BYTES: int = env.int("ATTACHMENT_MAX_BYTES", default=10 * 2**20)
HTTP_BODY_MAX_BYTES = max(DATA_UPLOAD_MAX_MEMORY_SIZE, ATTACHMENT_MAX_BYTES) + 64 * 1024  # refused unread above it

# --- Model endpoints ----------------------------------------------------------------------------------------------

OPENAI_BASE_URL: str = env.str("OPENAI_BASE_URL", default="")
OPENAI_API_KEY: str = env.str("OPENAI_API_KEY", default="")
OPENAI_MODEL: str = env.str("OPENAI_MODEL", default="")

# --- MCP ----------------------------------------------------------------------------------------------------------

MCP_ALLOW_PRIVATE: list[str] = env.list("MCP_ALLOW_PRIVATE", default=[])
MCP_ENV_ALLOWLIST: list[str] = env.list("MCP_ENV_ALLOWLIST", default=[])
# Where authorization servers read who we are; default: BASE_URL/mcp/oauth/client.json, which may not be reachable.
MCP_CLIENT_METADATA_URL: str = env.str("MCP_CLIENT_METADATA_URL", default="")
MCP_ENVIRONMENT: dict[str, str] = {name: env.ENVIRON[name] for name in MCP_ENV_ALLOWLIST if name in env.ENVIRON}
MCP = {
    "CONNECT_TIMEOUT": env.float("MCP_CONNECT_TIMEOUT", default=30.0),
    "CALL_TIMEOUT": env.float("MCP_CALL_TIMEOUT", default=60.0),  # mcp.Client has none of its own
    "CALL_MAX_SECONDS": env.float("MCP_CALL_MAX_SECONDS", default=1800.0),
    "CLOSE_SECONDS": env.float("MCP_CLOSE_SECONDS", default=5.0),
    "IDLE_SECONDS": env.float("MCP_USER_IDLE_SECONDS", default=900.0),
    "APP_IDLE_SECONDS": env.float("MCP_APP_IDLE_SECONDS", default=3600.0),
    "PING_SECONDS": env.float("MCP_PING_SECONDS", default=60.0),
    "USER_CONNECTIONS": env.int("MCP_USER_CONNECTIONS", default=8),
    "PROCESS_CONNECTIONS": env.int("MCP_PROCESS_CONNECTIONS", default=500),
    "BUSY_SECONDS": env.float("MCP_BUSY_SECONDS", default=5.0),
    "BREAKER_FAILURES": env.int("MCP_BREAKER_FAILURES", default=3),
    "BREAKER_WINDOW_SECONDS": env.float("MCP_BREAKER_WINDOW_SECONDS", default=120.0),
    "BREAKER_PAUSE_SECONDS": env.float("MCP_BREAKER_PAUSE_SECONDS", default=30.0),
    "BREAKER_MAX_PAUSE_SECONDS": env.float("MCP_BREAKER_MAX_PAUSE_SECONDS", default=300.0),
    "MAX_MESSAGE": env.int("MCP_MAX_MESSAGE", default=16 * 2**20),
    "OFFER_BUDGET_SECONDS": env.float("MCP_OFFER_BUDGET_SECONDS", default=5.0),
    "OFFER_MAX_TOOLS": env.int("MCP_OFFER_MAX_TOOLS", default=128),  # what OpenAI accepts
    "OFFER_DEFER_ABOVE": env.int("MCP_OFFER_DEFER_ABOVE", default=60),
    "OFFER_CONTEXT_SHARE": env.float("MCP_OFFER_CONTEXT_SHARE", default=0.2),
    "OWN_SERVERS": env.int("MCP_OWN_SERVERS", default=20),  # of one person in one organization
    "LIST_MAX_PAGES": 50,
    "LIST_MAX_TOOLS": 1000,
    "LIST_MAX_BYTES": 5 * 2**20,
    "LIST_SECONDS": env.float("MCP_LIST_SECONDS", default=30.0),
    "CATALOGUE_FRESH_SECONDS": env.float("MCP_CATALOGUE_FRESH_SECONDS", default=60.0),
    "CATALOGUE_STORED_SECONDS": env.float("MCP_CATALOGUE_STORED_SECONDS", default=43200.0),
    "RESULT_MAX_CHARACTERS": env.int("MCP_RESULT_MAX_CHARACTERS", default=50_000),
}

LOG_LEVEL: str = env.str("LOG_LEVEL", default="INFO")
LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {
            "()": "chatui.log_lines.LineFormatter",
            "format": "%(asctime)s %(levelname)s %(name)s %(message)s",
        }
    },
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": LOG_LEVEL},
    "loggers": {"mcp": {"level": "WARNING"}, "httpx2": {"level": "WARNING"}, "daphne": {"level": "WARNING"}},
}
