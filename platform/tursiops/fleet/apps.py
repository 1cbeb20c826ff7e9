from django.apps import AppConfig


class FleetConfig(AppConfig):
    name = "tursiops.fleet"
    label = "fleet"
