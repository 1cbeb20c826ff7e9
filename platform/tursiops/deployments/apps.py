from django.apps import AppConfig


class DeploymentsConfig(AppConfig):
    name = "tursiops.deployments"
    label = "deployments"
