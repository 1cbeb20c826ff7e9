from django.apps import AppConfig


class RegistryConfig(AppConfig):
    name = "tursiops.registry"
    label = "registry"

    def ready(self) -> None:
        from tursiops.jobs import kinds
        from tursiops.registry import sources

        sources.register()
        kinds.register("registry.domain_tokens", "tursiops.registry.domain_tokens.kind", origin="tursiops.registry")
        kinds.register("registry.import", "tursiops.registry.imports.kind", origin="tursiops.registry")
        kinds.register("registry.compare", "tursiops.registry.comparisons.kind", origin="tursiops.registry")
