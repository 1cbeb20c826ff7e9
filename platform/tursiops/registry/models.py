"""Model → Version → File, the aliases that point at versions, and the edges between them."""

from __future__ import annotations

from django.db import models

from tursiops.core.models import Blob, PublicModel, TeamOwned


class Model(TeamOwned):
    name = models.CharField(max_length=100)
    description = models.TextField(blank=True)
    task = models.CharField(max_length=32, default="text-generation")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "name"], name="model_name_in_team")]

    def __str__(self) -> str:
        return self.name


class VersionState(models.TextChoices):
    IMPORTING = "importing"
    READY = "ready"
    FAILED = "failed"


class SourceKind(models.TextChoices):
    PATH = "path"
    HUB = "hub"
    DEMO = "demo"
    JOB = "job"


class Version(PublicModel):
    """Immutable once ready: other bytes are another version."""

    team_path = "model__team"

    model = models.ForeignKey(Model, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=16, choices=VersionState.choices, default=VersionState.IMPORTING)
    reason = models.CharField(max_length=500, blank=True)
    source_kind = models.CharField(max_length=16, choices=SourceKind.choices)
    source_ref = models.CharField(max_length=500)  # hub id, package pin, or the path as the user gave it
    source_revision = models.CharField(max_length=100, blank=True)
    format = models.CharField(max_length=16, blank=True)  # gguf | safetensors
    architecture = models.CharField(max_length=64, blank=True)
    dtype = models.CharField(max_length=16, blank=True)
    quantization = models.CharField(max_length=64, blank=True)
    license = models.CharField(max_length=100, blank=True)
    size_bytes = models.BigIntegerField(default=0)
    shape = models.JSONField(default=dict)  # engines.api.ModelShape
    tokenizer = models.JSONField(default=dict)  # {kind, vocab_size, pre, bos, eos}
    chat_template = models.TextField(blank=True)

    class Meta:
        ordering = ["-number"]
        constraints = [models.UniqueConstraint(fields=["model", "number"], name="version_number_in_model")]

    def __str__(self) -> str:
        return f"{self.model.name} v{self.number}"


class VersionFile(models.Model):
    version = models.ForeignKey(Version, on_delete=models.CASCADE, related_name="files")
    name = models.CharField(max_length=255)
    blob = models.ForeignKey(Blob, on_delete=models.PROTECT, related_name="+")

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["version", "name"], name="file_name_in_version")]


class Alias(PublicModel):
    team_path = "model__team"

    model = models.ForeignKey(Model, on_delete=models.CASCADE, related_name="aliases")
    name = models.CharField(max_length=50)
    version = models.ForeignKey(Version, on_delete=models.PROTECT, related_name="aliases")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["model", "name"], name="alias_in_model")]


class LineageKind(models.TextChoices):
    QUANTIZED_FROM = "quantized_from"
    DISTILLED_FROM = "distilled_from"
    DRAFT_FOR = "draft_for"
    EXTENDED_FROM = "extended_from"  # domain tokens were added


class LineageEdge(PublicModel):
    team_path = "child__model__team"

    kind = models.CharField(max_length=20, choices=LineageKind.choices)
    parent = models.ForeignKey(Version, on_delete=models.CASCADE, related_name="descendants")
    child = models.ForeignKey(Version, on_delete=models.CASCADE, related_name="ancestors")
    job = models.ForeignKey("jobs.Job", on_delete=models.SET_NULL, null=True, related_name="+")
    changes = models.JSONField(default=dict)  # measured: {accuracy, size, speed}, each {before, after, unit}

    class Meta:
        constraints = [models.UniqueConstraint(fields=["kind", "parent", "child"], name="lineage_once")]


class Corpus(TeamOwned):
    """A team's own text, UTF-8, one document or paragraph on a line: what tokens are counted on."""

    name = models.CharField(max_length=100)
    blob = models.ForeignKey(Blob, on_delete=models.PROTECT, related_name="+")
    lines = models.BigIntegerField()

    class Meta:
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return self.name
