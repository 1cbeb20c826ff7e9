from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from tursiops.core.inputs import Input
from tursiops.registry.models import LineageKind, Model, Version, VersionFile, VersionState


class VersionFileSerializer(serializers.ModelSerializer[VersionFile]):
    size = serializers.IntegerField(source="blob.size", help_text="Bytes")
    sha256 = serializers.CharField(source="blob_id")

    class Meta:
        model = VersionFile
        fields = ["name", "size", "sha256"]


class VersionSerializer(serializers.ModelSerializer[Version]):
    """Rows of selectors.versions()."""

    model_name = serializers.CharField(source="model.name")
    has_chat_template = serializers.SerializerMethodField()
    files = VersionFileSerializer(many=True)
    job = serializers.UUIDField(allow_null=True, help_text="The newest import job of this version")
    shape = serializers.DictField(help_text="engines.api.ModelShape")
    tokenizer = serializers.DictField(help_text="kind, vocab_size, pre, bos, eos")

    class Meta:
        model = Version
        fields = [
            "id",
            "model",
            "model_name",
            "number",
            "state",
            "reason",
            "source_kind",
            "source_ref",
            "source_revision",
            "format",
            "architecture",
            "dtype",
            "quantization",
            "license",
            "size_bytes",
            "shape",
            "tokenizer",
            "has_chat_template",
            "files",
            "job",
            "created_at",
        ]
        read_only_fields = fields

    def get_has_chat_template(self, version: Version) -> bool:
        return bool(version.chat_template)


class VersionDetailSerializer(VersionSerializer):
    class Meta(VersionSerializer.Meta):
        fields = [*VersionSerializer.Meta.fields, "chat_template"]
        read_only_fields = fields


class AliasSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    version = serializers.UUIDField(source="version_id")
    number = serializers.IntegerField(source="version.number")


class ModelSerializer(serializers.ModelSerializer[Model]):
    """Rows of selectors.models()."""

    versions_count = serializers.SerializerMethodField()
    aliases = AliasSerializer(many=True)
    latest = serializers.SerializerMethodField(help_text="The newest ready version, else the newest")

    class Meta:
        model = Model
        fields = ["id", "name", "description", "task", "created_at", "versions_count", "aliases", "latest"]
        read_only_fields = fields

    def get_versions_count(self, model: Model) -> int:
        return len(model.versions.all())

    @extend_schema_field(VersionSerializer(allow_null=True))
    def get_latest(self, model: Model) -> dict[str, Any] | None:
        versions = list(model.versions.all())  # newest first, prefetched
        ready = [version for version in versions if version.state == VersionState.READY]
        latest = next(iter(ready or versions), None)
        return dict(VersionSerializer(latest).data) if latest else None


class ModelDetailSerializer(ModelSerializer):
    versions = VersionSerializer(many=True)

    class Meta(ModelSerializer.Meta):
        fields = [*ModelSerializer.Meta.fields, "versions"]
        read_only_fields = fields


class ModelInput(Input):
    name = serializers.CharField(max_length=100, required=False)
    description = serializers.CharField(max_length=10_000, required=False, allow_blank=True)


class ImportInput(Input):
    source = serializers.CharField(  # type: ignore[assignment] # a field may be named like an attribute of fields
        max_length=50, help_text="demo, path, hub, or the name of a plugin's source"
    )
    ref = serializers.CharField(max_length=500, required=False, allow_blank=True, default="")
    revision = serializers.CharField(max_length=100, required=False, allow_blank=True, default="")
    name = serializers.CharField(max_length=100, required=False, allow_blank=True, default="")


class AliasInput(Input):
    version = serializers.UUIDField()
    override = serializers.CharField(
        max_length=500, default="", allow_blank=True, help_text="An admin's reason for going past a gate; audited"
    )


class LineageNodeSerializer(serializers.Serializer[Any]):
    version = serializers.UUIDField()
    label = serializers.CharField()  # type: ignore[assignment] # as above


class LineageEdgeSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    kind = serializers.ChoiceField(choices=LineageKind.choices)
    parent = serializers.UUIDField()  # type: ignore[assignment] # as above
    child = serializers.UUIDField()
    job = serializers.UUIDField(allow_null=True)
    changes = serializers.DictField(help_text="Measured: accuracy, size, speed, each {before, after, unit}")


class LineageSerializer(serializers.Serializer[Any]):
    nodes = LineageNodeSerializer(many=True)
    edges = LineageEdgeSerializer(many=True)
