"""REST of quantization: schemes, what would come of them, their jobs, and the table of what came."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from tursiops.core.audit import actor_of
from tursiops.core.errors import TursiopsError
from tursiops.core.permissions import Action, RestrictedQuerySet
from tursiops.core.views import DeclaredView, TeamViewSet
from tursiops.evaluations.api import RowViewSet
from tursiops.evaluations.inputs import OwnRows
from tursiops.quantization import plans, rows, schemes, selectors, services, traffic
from tursiops.quantization import serializers as s
from tursiops.quantization.asked import Asked
from tursiops.quantization.inputs import QuantizeInput
from tursiops.quantization.models import Quantization
from tursiops.registry.models import Version

MAX_KEY = 80  # characters
_KEY = OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER, description=f"At most {MAX_KEY} characters")


class SchemesQuery(OwnRows):
    version = serializers.PrimaryKeyRelatedField(
        queryset=Version.objects.select_related("model__team"), required=False, help_text="That limits are for"
    )


class OfTeam(DeclaredView):
    @property
    def team(self) -> Any:
        return self.request.team  # type: ignore[attr-defined] # set by middleware or key


class SchemesView(OfTeam):
    queries = {"get": SchemesQuery}

    @extend_schema(
        operation_id="quantization_schemes", parameters=[SchemesQuery], responses=s.SchemeSerializer(many=True)
    )
    def get(self, request: Request) -> Response:
        """What can be made of a model, each with an explanation and what devices do with it."""
        version = self.valid_query().get("version")
        parameters = int(version.shape.get("parameters") or 0) if version else 0
        return Response(schemes.listed(parameters))


class TrafficView(OfTeam):
    @extend_schema(operation_id="quantization_traffic", responses=s.KeptTrafficSerializer)
    def get(self, request: Request) -> Response:
        """Prompts of this team that are kept as calibration data: of keys that were made with `traffic_consent`."""
        found = traffic.kept(self.team)
        return Response({"rows": found.rows, "bytes": found.size, "keys": found.keys})

    @extend_schema(operation_id="quantization_traffic_erase", responses={204: None})
    def delete(self, request: Request) -> Response:
        traffic.erase(self.team, actor_of(request))
        return Response(status=status.HTTP_204_NO_CONTENT)


# Of a version as the base. A comment, for a docstring would be inherited into the API's reference.
class QuantizeViewSet(TeamViewSet):
    serializer_class = s.QuantizationSerializer
    inputs = {"quantize": QuantizeInput, "plan": QuantizeInput}
    required_action = {"quantize": Action.CHANGE, "plan": Action.VIEW, "table": Action.VIEW}

    def rows(self) -> RestrictedQuerySet:
        found: RestrictedQuerySet = Version.objects.select_related("model__team")
        return found

    def _asked(self) -> Asked:
        given = QuantizeInput(data=self.request.data, context={"request": self.request, "view": self})
        given.is_valid(raise_exception=True)
        return given.asked()

    @extend_schema(operation_id="versions_quantize_plan", request=QuantizeInput, responses=s.QuantizePlanSerializer)
    @action(detail=True, methods=["post"], url_path="quantize/plan")
    def plan(self, request: Request, pk: str) -> Response:
        """What would come of it, and what stands in the way; nothing is started."""
        return Response(plans.plan(self.get_object(), self._asked()))

    @extend_schema(
        operation_id="versions_quantize",
        request=QuantizeInput,
        responses={202: s.QuantizationSerializer(many=True)},
        parameters=[_KEY],
    )
    @action(detail=True, methods=["post"])
    def quantize(self, request: Request, pk: str) -> Response:
        """A job for each scheme makes the model's next version; all are started, or none."""
        key = request.headers.get("Idempotency-Key") or None
        if key is not None and len(key) > MAX_KEY:
            raise TursiopsError(f"Idempotency-Key has {len(key)} characters; at most {MAX_KEY} are taken.")
        base = self.get_object()
        made = services.quantize(base=base, actor=self.actor, asked=self._asked(), idempotency_key=key)
        return Response([rows.row(item) for item in made], status=status.HTTP_202_ACCEPTED)

    @extend_schema(operation_id="versions_quantizations", responses=s.QuantizationTableSerializer)
    @action(detail=True, url_path="quantizations", filterset_fields=[], pagination_class=None)
    def table(self, request: Request, pk: str) -> Response:
        """The base and all that was made of it, side by side."""
        base = self.get_object()
        found = selectors.of_base(base, selectors.quantizations().restrict(request.user, team=self.team))
        about = {"version": str(base.pk), "label": str(base), "figures": rows.base_figures(base, found)}
        return Response({"base": about, "rows": [rows.row(item) for item in found]})


class QuantizationViewSet(RowViewSet):
    serializer_class = s.QuantizationSerializer
    filterset_fields = ["base", "scheme", "verdict", "job"]

    def rows(self) -> RestrictedQuerySet:
        return selectors.quantizations_in_full() if self.action == "retrieve" else selectors.quantizations()

    def shown(self, item: Quantization) -> dict[str, Any]:
        return rows.row(item)

    @extend_schema(operation_id="quantizations_list", responses=s.QuantizationSerializer(many=True))
    def list(self, request: Request) -> Response:
        return self.paged()

    @extend_schema(operation_id="quantizations_get", responses=s.QuantizationDetailSerializer)
    def retrieve(self, request: Request, pk: str) -> Response:
        """With each of its layers, while they are done and afterwards."""
        return Response(rows.detail(self.get_object()))
