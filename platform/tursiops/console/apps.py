from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    name = "tursiops.console"
    label = "console"
