"""REST of the capacity planner: answers, kept plans, and profiles of what the team's applications ask."""

from __future__ import annotations

from typing import Any

import msgspec
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from tursiops.accounts.models import Team
from tursiops.core.permissions import Action, RestrictedQuerySet
from tursiops.core.views import DeclaredView
from tursiops.evaluations import inputs as takes
from tursiops.evaluations import plans, rows, selectors
from tursiops.evaluations import serializers as s
from tursiops.evaluations.api import RowViewSet
from tursiops.evaluations.models import Plan


class PlanViewSet(RowViewSet):
    serializer_class = s.PlanSerializer
    filterset_fields = ["version", "run"]
    inputs = {"create": takes.PlanInput, "confirm": takes.ConfirmInput}

    def rows(self) -> RestrictedQuerySet:
        return selectors.plans()

    def shown(self, item: Plan) -> dict[str, Any]:
        return rows.plan_row(item)

    @extend_schema(operation_id="plans_list", responses=s.PlanSerializer(many=True))
    def list(self, request: Request) -> Response:
        return self.paged()

    @extend_schema(operation_id="plans_get", responses=s.PlanSerializer)
    def retrieve(self, request: Request, pk: str) -> Response:
        return self.answer(self.get_object())

    @extend_schema(operation_id="plans_create", request=takes.PlanInput, responses={201: s.PlanSerializer})
    def create(self, request: Request) -> Response:
        plan = plans.create_plan(team=self.team, actor=self.actor, **self.valid_input())
        return self.answer(plan, status.HTTP_201_CREATED)

    @extend_schema(operation_id="plans_delete", responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        plans.delete_plan(plan=self.get_object(), actor=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(operation_id="plans_confirm", request=takes.ConfirmInput, responses=s.PlanSerializer)
    @action(detail=True, methods=["post"])
    def confirm(self, request: Request, pk: str) -> Response:
        """Link the run that puts the plan to the test; its residuals come when the run is complete."""
        plan = self.get_object()
        return self.answer(plans.put_to_test(plan=plan, actor=self.actor, **self.valid_input()))


# Of views whose body may name rows of the team.
class _TeamView(DeclaredView):
    required_action = Action.VIEW

    @property
    def team(self) -> Team:
        return self.request.team  # type: ignore[attr-defined,no-any-return] # set by middleware or key


class AnswerView(_TeamView):
    inputs = {"post": takes.AnswerInput}

    @extend_schema(operation_id="evaluations_plan", request=takes.AnswerInput, responses=OpenApiTypes.OBJECT)
    def post(self, request: Request) -> Response:
        """What the planner says (evaluation.planner.answers.Plan); nothing is kept."""
        return Response(msgspec.to_builtins(plans.answer(**self.valid_input())))


class ProfileView(_TeamView):
    inputs = {"post": takes.ProfileInput}

    @extend_schema(operation_id="evaluations_profile", request=takes.ProfileInput, responses=OpenApiTypes.OBJECT)
    def post(self, request: Request) -> Response:
        """A profile (evaluation.profile.BusinessProfile) fitted from the team's own usage records."""
        given = self.valid_input()
        deployment = given.pop("deployment", None)
        return Response(
            plans.fitted_profile(team=self.team, deployment_id=deployment.pk if deployment else None, **given)
        )
