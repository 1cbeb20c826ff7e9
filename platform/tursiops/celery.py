"""The Celery application. Tasks are thin: they call one service with an id."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tursiops.settings.prod")

app = Celery("tursiops")
app.set_default()  # for every thread: "current" alone holds for the one that imported this
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
