from django.apps import AppConfig


class JobsConfig(AppConfig):
    name = "tursiops.jobs"
    label = "jobs"

    def ready(self) -> None:
        import tursiops.celery  # noqa: F401 - so that tasks sent from any process go to our broker
