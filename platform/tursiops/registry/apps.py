from django.apps import AppConfig


class RegistryConfig(AppConfig):
    name = "tursiops.registry"
    label = "registry"
