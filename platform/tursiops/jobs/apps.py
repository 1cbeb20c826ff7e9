from django.apps import AppConfig


class JobsConfig(AppConfig):
    name = "tursiops.jobs"
    label = "jobs"
