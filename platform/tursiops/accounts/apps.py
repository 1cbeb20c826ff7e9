from django.apps import AppConfig


class AccountsConfig(AppConfig):
    name = "tursiops.accounts"
    label = "accounts"

    def ready(self) -> None:
        from tursiops.accounts import schema  # noqa: F401 - registers itself
