from django.apps import AppConfig


class EvaluationsConfig(AppConfig):
    name = "tursiops.evaluations"
    label = "evaluations"

    def ready(self) -> None:
        from tursiops.core import moves
        from tursiops.evaluations import gates
        from tursiops.jobs import kinds

        kinds.register("evaluations.run", "tursiops.evaluations.execute.kind", origin="tursiops.evaluations")
        moves.checks.register("evaluations.gates", gates.refusals, origin="tursiops.evaluations")
