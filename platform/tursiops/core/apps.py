from functools import partial

from django.apps import AppConfig


class CoreConfig(AppConfig):
    name = "tursiops.core"
    label = "core"

    def ready(self) -> None:
        from engines.api import engine_names, get_engine
        from tursiops.core import plugins
        from tursiops.core.registry import engines

        for name in engine_names():
            engines.register(name, partial(get_engine, name), origin="engines.api")
        plugins.load_installed()
