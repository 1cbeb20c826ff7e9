from django.urls import path
from rest_framework.routers import SimpleRouter

from tursiops.quantization.api import QuantizationViewSet, QuantizeViewSet, SchemesView, TrafficView

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("versions", QuantizeViewSet, basename="quantize")
router.register("quantizations", QuantizationViewSet, basename="quantizations")
urlpatterns = [
    path("quantization/schemes", SchemesView.as_view()),
    path("quantization/traffic", TrafficView.as_view()),
    *router.urls,
]
