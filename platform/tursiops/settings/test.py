"""Settings of the test suite. Services are started by tests/services.py, which sets the environment first."""

from tursiops.settings.base import *  # noqa: F403 - a settings module is its base plus overrides

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # tests make many users
CELERY_TASK_ALWAYS_EAGER = False
STATIC_ROOT.mkdir(parents=True, exist_ok=True)  # noqa: F405 - WhiteNoise warns of a folder that isn't there
