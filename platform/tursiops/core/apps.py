from django.apps import AppConfig


class CoreConfig(AppConfig):
    name = "tursiops.core"
    label = "core"
