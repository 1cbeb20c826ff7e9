from rest_framework.routers import SimpleRouter

from tursiops.fleet.api import NodeViewSet

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("nodes", NodeViewSet, basename="nodes")
urlpatterns = router.urls
