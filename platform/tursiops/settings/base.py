"""Settings shared by every mode. Values come from `env.VARIABLES`, or from files in the data folder."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from tursiops.settings import env, logs

env.check_unknown()

PACKAGE_DIR = Path(__file__).resolve().parent.parent
ROOT_DIR = PACKAGE_DIR.parent.parent
IN_CLONE = (ROOT_DIR / "manage.py").exists()


def _data_dir() -> Path:
    chosen = env.read("TURSIOPS_DATA_DIR")
    if chosen:
        return Path(chosen).expanduser().resolve()
    return ROOT_DIR / ".data" if IN_CLONE else Path.home() / ".local" / "share" / "tursiops"


def _secret(path: Path) -> str:
    """A random key made once and kept in the data folder, readable by its owner alone."""
    try:
        return path.read_text()
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.{os.getpid()}")
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(secrets.token_urlsafe(48))
        try:
            os.link(part, path)  # the first of two starters wins; both then read the same key
        except FileExistsError:
            pass
        finally:
            part.unlink()
        return path.read_text()


DATA_DIR = _data_dir()
RUN_DIR = DATA_DIR / "run"  # sockets, state files, live logs: lost without harm
STORE_DIR = DATA_DIR / "store"  # content-addressed files
ENGINE_CACHE_DIR = DATA_DIR / "cache" / "engines"  # what engines keep between starts: lost without harm
SECRET_KEY = _secret(DATA_DIR / "secret-key")
DEBUG = env.read("TURSIOPS_DEBUG")
ALLOWED_HOSTS = env.read("TURSIOPS_ALLOWED_HOSTS")
CSRF_TRUSTED_ORIGINS = env.read("TURSIOPS_TRUSTED_ORIGINS")
HF_ENDPOINT = env.read("HF_ENDPOINT")
NODE_NAME = env.read("TURSIOPS_NODE_NAME") or os.uname().nodename
GATEWAY_HOST = env.read("TURSIOPS_GATEWAY_HOST")
GATEWAY_PORT = env.read("TURSIOPS_GATEWAY_PORT")
WEB_SOCKET = env.read("TURSIOPS_WEB_SOCKET") or str(RUN_DIR / "web.sock")
MODEL_PATHS = env.read("TURSIOPS_MODEL_PATHS")
EVALUATION_HOSTS = env.read("TURSIOPS_EVALUATION_HOSTS")
EVALUATION_KEEP_DAYS = env.read("TURSIOPS_EVALUATION_KEEP_DAYS")
LOG_FORMAT = env.read("TURSIOPS_LOG_FORMAT")
LOGGING = logs.configure(LOG_FORMAT)

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_filters",
    "django_celery_beat",
    "tursiops.accounts",
    "tursiops.registry",
    "tursiops.fleet",
    "tursiops.deployments",
    "tursiops.jobs",
    "tursiops.evaluations",
    "tursiops.quantization",
    "tursiops.playground",
    "tursiops.usage",
    "tursiops.console",
    "tursiops.core",  # last: its ready() loads third-party plugins, after the apps have registered what is built in
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "tursiops.console.middleware.ContentSecurityPolicyMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "tursiops.accounts.middleware.CurrentTeamMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "tursiops.urls"
ASGI_APPLICATION = "tursiops.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

AUTH_USER_MODEL = "accounts.User"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_FAILURE_VIEW = "tursiops.core.error_responses.csrf_failure"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = env.read("TURSIOPS_SECURE_COOKIES")
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
DATA_UPLOAD_MAX_MEMORY_SIZE = 2 * 1024 * 1024

LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
TIME_ZONE = "UTC"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

STATIC_URL = "/static/"
STATIC_ROOT = DATA_DIR / "static"
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = False


def database(url: str) -> dict[str, Any]:
    """Django's database settings for `url`; SQLite in the data folder where it is empty."""
    if not url:
        DATA_DIR.mkdir(parents=True, exist_ok=True, mode=0o700)
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": str(DATA_DIR / "tursiops.sqlite3"),
            "OPTIONS": {
                "timeout": 20,
                "transaction_mode": "IMMEDIATE",  # a writer waits at BEGIN instead of failing half-way
                "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
            },
        }
    parts = urlparse(url)
    if parts.scheme not in ("postgres", "postgresql"):
        raise env.SettingsError(
            f"DATABASE_URL starts with {parts.scheme!r}; use postgres://…, or leave it empty for SQLite"
        )
    query = dict(pair.split("=", 1) for pair in parts.query.split("&") if "=" in pair)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": unquote(query.pop("host", parts.hostname or "")),
        "PORT": str(parts.port or ""),
        "CONN_MAX_AGE": 60,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": query,
    }


DATABASES = {"default": database(env.read("DATABASE_URL"))}

REDIS_URL = env.read("REDIS_URL") or f"unix://{RUN_DIR / 'broker.sock'}"
CELERY_BROKER_URL = REDIS_URL.replace("unix://", "redis+socket://", 1)
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": 3600}
CELERY_TASK_DEFAULT_QUEUE = "jobs"
CELERY_BEAT_SCHEDULER = "django_celery_beat.schedulers:DatabaseScheduler"
CELERY_BEAT_SCHEDULE = {
    "reap-lost-jobs": {"task": "jobs.reap_lost_jobs", "schedule": 30.0},
    "collect-garbage": {"task": "jobs.collect_garbage", "schedule": 86400.0},
    "clean-up-evaluations": {"task": "evaluations.clean_up", "schedule": 21600.0},
}
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_REDIRECT_STDOUTS = False

CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.core.RedisChannelLayer",
        # redis-py's own time-out of 5 s would end every socket that hears nothing for 5 s.
        "CONFIG": {"hosts": [{"address": REDIS_URL, "socket_timeout": None}], "capacity": 200, "expiry": 30},
    }
}
CACHES = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": REDIS_URL}}

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "tursiops.accounts.authentication.ApiKeyAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["tursiops.core.permissions.TeamPermission"],
    "DEFAULT_PAGINATION_CLASS": "tursiops.core.pagination.PageNumberPagination",
    "DEFAULT_FILTER_BACKENDS": ["django_filters.rest_framework.DjangoFilterBackend"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["tursiops.core.parsers.JSONParser"],
    "EXCEPTION_HANDLER": "tursiops.core.error_responses.exception_handler",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Tursiops",
    "DESCRIPTION": "Control plane of Tursiops: models, jobs, deployments, nodes, keys, usage.",
    "VERSION": "1",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "SERVE_INCLUDE_SCHEMA": False,
    "COMPONENT_SPLIT_REQUEST": True,
    "SWAGGER_UI_DIST": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    "ENUM_NAME_OVERRIDES": {
        "JobStateEnum": "tursiops.jobs.models.JobState",
        "VersionStateEnum": "tursiops.registry.models.VersionState",
        "InstanceStateEnum": "tursiops.deployments.models.InstanceState",
        "DeploymentStateEnum": ["ready", "degraded", "starting", "stopped", "failed", "deleting"],
        "NodeStateEnum": "tursiops.fleet.health.NodeState",
        "LineageKindEnum": "tursiops.registry.models.LineageKind",
        "EvaluationRunStateEnum": "tursiops.evaluations.models.RunState",
        "EvaluationVerdictEnum": "tursiops.evaluations.models.Verdict",
        "EvaluationGateKindEnum": "tursiops.evaluations.models.GateKind",
        "QuantizationVerdictEnum": ["passed", "failed", "error"],
    },
}
