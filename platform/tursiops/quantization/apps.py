from django.apps import AppConfig


class QuantizationConfig(AppConfig):
    name = "tursiops.quantization"
    label = "quantization"

    def ready(self) -> None:
        from tursiops.core import moves
        from tursiops.jobs import kinds
        from tursiops.quantization import verdicts

        kinds.register("quantization.make", "tursiops.quantization.execute.kind", origin="tursiops.quantization")
        moves.checks.register("quantization.verdict", verdicts.refusals, origin="tursiops.quantization")
