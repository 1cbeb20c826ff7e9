from django.urls import path
from rest_framework.routers import SimpleRouter

from tursiops.evaluations.api import BaselineViewSet, EndpointViewSet, ScheduleViewSet, SuiteViewSet
from tursiops.evaluations.plans_api import AnswerView, PlanViewSet, ProfileView
from tursiops.evaluations.runs_api import GateViewSet, RunViewSet

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("evaluations/suites", SuiteViewSet, basename="evaluation-suites")
router.register("evaluations/endpoints", EndpointViewSet, basename="evaluation-endpoints")
router.register("evaluations/runs", RunViewSet, basename="evaluation-runs")
router.register("evaluations/baselines", BaselineViewSet, basename="evaluation-baselines")
router.register("evaluations/schedules", ScheduleViewSet, basename="evaluation-schedules")
router.register("evaluations/gates", GateViewSet, basename="evaluation-gates")
router.register("evaluations/plans", PlanViewSet, basename="evaluation-plans")
urlpatterns = [
    path("evaluations/plan", AnswerView.as_view()),
    path("evaluations/profile", ProfileView.as_view()),
    *router.urls,
]
