from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "tursiops.accounts"
    label = "accounts"
