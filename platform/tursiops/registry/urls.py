from rest_framework.routers import SimpleRouter

from tursiops.registry.api import ModelViewSet, VersionViewSet
from tursiops.registry.domain_tokens_api import CorpusViewSet, DomainTokensViewSet

router = SimpleRouter(trailing_slash=False, use_regex_path=False)
router.register("models", ModelViewSet, basename="models")
router.register("versions", VersionViewSet, basename="versions")
router.register("versions", DomainTokensViewSet, basename="domain-tokens")
router.register("corpora", CorpusViewSet, basename="corpora")
urlpatterns = router.urls
