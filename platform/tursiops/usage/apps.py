from django.apps import AppConfig


class UsageConfig(AppConfig):
    name = "tursiops.usage"
    label = "usage"
