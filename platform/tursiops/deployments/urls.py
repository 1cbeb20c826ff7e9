from django.urls import path
from rest_framework.routers import SimpleRouter

from tursiops.deployments.api import DeploymentViewSet, EngineList, InstanceViewSet

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("deployments", DeploymentViewSet, basename="deployments")
router.register("instances", InstanceViewSet, basename="instances")
urlpatterns = [path("engines", EngineList.as_view(), name="engines"), *router.urls]
