from django.apps import AppConfig


class PlaygroundConfig(AppConfig):
    name = "tursiops.playground"
    label = "playground"
