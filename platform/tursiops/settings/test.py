"""Settings of the test suite. Services are started by tests/services.py, which sets the environment first."""

from tursiops.settings.base import *  # noqa: F403 - a settings module is its base plus overrides

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # tests make many users
CELERY_TASK_ALWAYS_EAGER = False
STATIC_ROOT.mkdir(parents=True, exist_ok=True)  # noqa: F405 - WhiteNoise warns of a folder that isn't there
WHITENOISE_AUTOREFRESH = True  # or each test client lists all static files anew: a third of most requests' time
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):  # noqa: F405
    # A file, as in production, at the place where processes that a test starts will look for it.
    DATABASES["default"]["TEST"] = {"NAME": DATABASES["default"]["NAME"]}  # noqa: F405
