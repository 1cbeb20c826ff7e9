from rest_framework.routers import SimpleRouter

from tursiops.registry.api import ModelViewSet, VersionViewSet

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("models", ModelViewSet, basename="models")
router.register("versions", VersionViewSet, basename="versions")
urlpatterns = router.urls
