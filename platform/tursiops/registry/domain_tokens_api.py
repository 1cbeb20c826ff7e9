"""REST of domain tokens: POST versions/{id}/domain-tokens, and the corpora that they are counted on."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import mixins, serializers, status
from rest_framework.decorators import action
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response

from engines.terms import MAX_TERMS
from tursiops.core.errors import TursiopsError
from tursiops.core.inputs import Input
from tursiops.core.parsers import JSONParser
from tursiops.core.permissions import RestrictedQuerySet
from tursiops.core.views import TeamViewSet
from tursiops.jobs.serializers import JobSerializer
from tursiops.registry import corpora, domain_tokens
from tursiops.registry.models import Corpus, Version

MAX_KEY = 100  # characters


class CorpusSerializer(serializers.ModelSerializer[Corpus]):
    size = serializers.IntegerField(source="blob.size", help_text="Bytes")
    sha256 = serializers.CharField(source="blob_id")

    class Meta:
        model = Corpus
        fields = ["id", "name", "size", "lines", "sha256", "created_at"]
        read_only_fields = fields


class CorpusInput(Input):
    file = serializers.FileField(help_text="UTF-8 text, one document or paragraph on a line; at most 256 MiB")
    name = serializers.CharField(max_length=100, default="", allow_blank=True, help_text="Empty: the file's own")


@extend_schema_view(list=extend_schema(operation_id="corpora_list"))
class CorpusViewSet(mixins.ListModelMixin, TeamViewSet):
    serializer_class = CorpusSerializer
    parser_classes = [JSONParser, MultiPartParser]
    inputs = {"create": CorpusInput}

    def rows(self) -> RestrictedQuerySet:
        rows: RestrictedQuerySet = Corpus.objects.select_related("blob", "team")
        return rows

    @extend_schema(operation_id="corpora_add", request=CorpusInput, responses={201: CorpusSerializer})
    def create(self, request: Request) -> Response:
        given = self.valid_input()
        file = given["file"]
        name = given["name"] or str(file.name)[:100]
        corpus = corpora.add_corpus(team=self.team, actor=self.actor, name=name, file=file.file, size=file.size)
        return Response(CorpusSerializer(corpus).data, status=status.HTTP_201_CREATED)

    @extend_schema(operation_id="corpora_delete", responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        corpora.delete_corpus(corpus=self.get_object(), actor=self.actor)
        return Response(status=status.HTTP_204_NO_CONTENT)


class DomainTokensInput(Input):
    terms = serializers.ListField(
        child=serializers.CharField(allow_blank=True, trim_whitespace=False),
        max_length=MAX_TERMS,
        default=list,
        help_text="Words and phrases, each as it stands in texts",
    )
    corpus = serializers.PrimaryKeyRelatedField(
        queryset=Corpus.objects.none(),
        allow_null=True,
        default=None,
        help_text="To count tokens on, and to look for candidates in",
    )
    candidates = serializers.IntegerField(
        min_value=0,
        max_value=domain_tokens.MAX_CANDIDATES,
        default=0,
        help_text="So many terms are looked for in the corpus, by occurrences × tokens saved",
    )
    min_count = serializers.IntegerField(
        min_value=1, max_value=1_000_000, default=5, help_text="Occurrences that a candidate must have"
    )
    skip_unneeded = serializers.BooleanField(
        default=False, help_text="Leave out terms that need no token or can't have one; else they are an error"
    )
    dtype = serializers.ChoiceField(
        choices=domain_tokens.DTYPES,
        default="auto",
        help_text="Of the tensors of a version that is GGUF. auto: exactly the values that the engine computes with",
    )
    preview = serializers.BooleanField(default=False, help_text="Count only; no version is made")

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """Corpora of the caller's own team only."""
        fields = super().get_fields()
        view = self.context.get("view")
        if view is not None and not getattr(view, "swagger_fake_view", False):
            visible = Corpus.objects.restrict(view.request.user, team=view.team).select_related("team")
            fields["corpus"].queryset = visible  # type: ignore[attr-defined] # PrimaryKeyRelatedField
        return fields


class DomainTokensViewSet(TeamViewSet):
    serializer_class = JobSerializer
    inputs = {"domain_tokens": DomainTokensInput}

    def rows(self) -> RestrictedQuerySet:
        rows: RestrictedQuerySet = Version.objects.select_related("model__team")
        return rows

    @extend_schema(
        operation_id="versions_add_domain_tokens",
        request=DomainTokensInput,
        responses={202: JobSerializer},
        parameters=[
            OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER, description="At most 100 characters")
        ],
    )
    @action(detail=True, methods=["post"], url_path="domain-tokens")
    def domain_tokens(self, request: Request, pk: str) -> Response:
        """Grow the vocabulary by the user's terms: the job makes the model's next version, or a preview."""
        key = request.headers.get("Idempotency-Key") or None
        if key is not None and len(key) > MAX_KEY:
            raise TursiopsError(f"Idempotency-Key has {len(key)} characters; at most {MAX_KEY} are taken.")
        base = self.get_object()
        job = domain_tokens.add_domain_tokens(base=base, actor=self.actor, idempotency_key=key, **self.valid_input())
        return Response(JobSerializer(job).data, status=status.HTTP_202_ACCEPTED)
