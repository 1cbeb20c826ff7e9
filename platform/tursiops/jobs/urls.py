from rest_framework.routers import SimpleRouter

from tursiops.jobs.api import JobViewSet

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("jobs", JobViewSet, basename="jobs")
urlpatterns = router.urls
