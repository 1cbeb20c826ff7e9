"""REST of runs, gates and plans."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.http import FileResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.generics import get_object_or_404
from rest_framework.request import Request
from rest_framework.response import Response

from tursiops.core import moves, store
from tursiops.core.errors import NotFound, TursiopsError
from tursiops.core.filestore import StoreError
from tursiops.core.permissions import Action, RestrictedQuerySet
from tursiops.deployments.refusals import refuse
from tursiops.deployments.services import rollout_move
from tursiops.evaluations import gates, results, rows, runs, selectors, targets
from tursiops.evaluations import inputs as takes
from tursiops.evaluations import serializers as s
from tursiops.evaluations.api import RowViewSet
from tursiops.evaluations.models import Gate, Run
from tursiops.registry.services import alias_move

MAX_KEY = 80  # characters
_KEY = OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER, description=f"At most {MAX_KEY} characters")


class RunViewSet(RowViewSet):
    serializer_class = s.RunSerializer
    filterset_fields = ["suite", "deployment", "endpoint", "version", "schedule", "state", "verdict"]
    inputs = {"create": takes.RunInput}
    queries = {"points": takes.PointsQuery}

    def rows(self) -> RestrictedQuerySet:
        return selectors.runs_in_full() if self.action in ("retrieve", "file") else selectors.runs()

    def shown(self, item: Run) -> dict[str, Any]:
        return rows.run_row(item)

    @extend_schema(operation_id="evaluation_runs_list", responses=s.RunSerializer(many=True))
    def list(self, request: Request) -> Response:
        """Newest first: of one suite and target, their history."""
        return self.paged()

    @extend_schema(operation_id="evaluation_runs_get", responses=s.RunDetailSerializer)
    def retrieve(self, request: Request, pk: str) -> Response:
        run = self.get_object()
        return Response(rows.run_detail(run, results.so_far(run)))

    @extend_schema(
        operation_id="evaluation_runs_create",
        request=takes.RunInput,
        responses={202: s.RunSerializer},
        parameters=[_KEY],
    )
    def create(self, request: Request) -> Response:
        """Start a suite on a target. While another run is on it, this one waits, and says for which."""
        key = request.headers.get("Idempotency-Key") or None
        if key is not None and len(key) > MAX_KEY:
            raise TursiopsError(f"Idempotency-Key has {len(key)} characters; at most {MAX_KEY} are taken.")
        given = self.valid_input()
        target = targets.chosen(given.pop("deployment", None), given.pop("endpoint", None))
        run = runs.create_run(target=target, actor=self.actor, idempotency_key=key, **given)
        return self.answer(run, status.HTTP_202_ACCEPTED)

    @extend_schema(operation_id="evaluation_runs_delete", responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        runs.delete_run(run=self.get_object(), actor=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(operation_id="evaluation_runs_cancel", request=None, responses=s.RunSerializer)
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, pk: str) -> Response:
        """What was measured until then is kept."""
        return self.answer(runs.cancel_run(run=self.get_object(), actor=self.actor))

    @extend_schema(
        operation_id="evaluation_runs_points", parameters=[takes.PointsQuery], responses=s.PointPageSerializer
    )
    @action(detail=True, pagination_class=None, filterset_fields=[])
    def points(self, request: Request, pk: str) -> Response:
        """What the run has measured so far; the rest comes in the socket's messages of its job."""
        after = self.valid_query()["after"]
        found = selectors.points(self.get_object(), after)
        shown = [{"id": it.pk, "name": it.name, "step": it.step, "value": it.value} for it in found]
        return Response({"points": shown, "next": shown[-1]["id"] if shown else after})

    @extend_schema(
        operation_id="evaluation_runs_file", responses={(200, "application/octet-stream"): OpenApiTypes.BINARY}
    )
    @action(detail=True, url_path="files/<path:name>", filterset_fields=[])
    def file(self, request: Request, pk: str, name: str) -> FileResponse:
        run = self.get_object()
        file = get_object_or_404(run.files.all(), name=name)
        try:
            data = store.open_blob(file.blob_id)
        except StoreError as error:
            raise NotFound(f"{name} is not on this node.", hint="It lies on the node that ran the job.") from error
        answer = FileResponse(data, as_attachment=True, filename=f"{run.pk}-{name.replace('/', '-')}")
        answer["Content-Security-Policy"] = "sandbox"  # a report is a stranger's page here
        return answer


class GateViewSet(RowViewSet):
    serializer_class = s.GateSerializer
    filterset_fields = ["kind", "model", "deployment", "suite", "enabled"]
    required_action = {
        "create": Action.ADMIN,
        "partial_update": Action.ADMIN,
        "destroy": Action.ADMIN,
        "check": Action.VIEW,
    }
    inputs = {"create": takes.GateInput, "partial_update": takes.GateUpdate, "check": takes.MoveCheckInput}

    def rows(self) -> RestrictedQuerySet:
        return selectors.gates()

    def shown(self, item: Gate) -> dict[str, Any]:
        return rows.gate_row(item)

    @extend_schema(operation_id="gates_list", responses=s.GateSerializer(many=True))
    def list(self, request: Request) -> Response:
        return self.paged()

    @extend_schema(operation_id="gates_get", responses=s.GateSerializer)
    def retrieve(self, request: Request, pk: str) -> Response:
        return self.answer(self.get_object())

    @extend_schema(operation_id="gates_create", request=takes.GateInput, responses={201: s.GateSerializer})
    def create(self, request: Request) -> Response:
        gate = gates.create_gate(team=self.team, actor=self.actor, **self.valid_input())
        return self.answer(gate, status.HTTP_201_CREATED)

    @extend_schema(operation_id="gates_update", request=takes.GateUpdate, responses=s.GateSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:
        gate = self.get_object()
        return self.answer(gates.update_gate(gate=gate, actor=self.actor, **self.valid_input()))

    @extend_schema(operation_id="gates_delete", responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        gates.delete_gate(gate=self.get_object(), actor=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(operation_id="gates_check", request=takes.MoveCheckInput, responses=s.MoveCheckSerializer)
    @action(detail=False, methods=["post"], filterset_fields=[])
    def check(self, request: Request) -> Response:
        """What would stop a move, without making it."""
        given = self.valid_input()
        if ("alias" in given) == ("deployment" in given):
            raise refuse("alias", "Give an alias or a deployment: one of them.")
        version = given["version"]
        if "alias" in given:
            move = alias_move(version.model, given["alias"], version)
        else:
            move = rollout_move(given["deployment"], version)
        found = moves.refusals(move)
        return Response({"allowed": not found, "move": str(move), "refusals": [asdict(item) for item in found]})
