"""One scheme of one base: what was asked, and what came of it. The version itself is the registry's."""

from __future__ import annotations

from django.db import models

from tursiops.core.models import PublicModel


class Verdict(models.TextChoices):
    NONE = ""
    PASSED = "passed"
    FAILED = "failed"  # the work ran, and a limit was not kept
    ERROR = "error"  # a figure that a limit is about could not be measured


class Quantization(PublicModel):
    team_path = "base__model__team"

    base = models.ForeignKey("registry.Version", on_delete=models.CASCADE, related_name="quantizations")
    version = models.OneToOneField(  # null: cancelled, or deleted since
        "registry.Version", on_delete=models.SET_NULL, null=True, related_name="made_by"
    )
    job = models.OneToOneField("jobs.Job", on_delete=models.CASCADE, related_name="quantization")
    optimizer = models.CharField(max_length=50)  # name at the plugin point
    scheme = models.CharField(max_length=50)
    scheme_label = models.CharField(max_length=100)
    recipe = models.JSONField(default=dict)  # as the optimizer's spec_schema has it
    calibration = models.JSONField(default=dict)  # {source, corpus, samples, tokens}
    gate = models.JSONField(default=dict)  # {figure: limit}
    device = models.CharField(max_length=32)  # that it is meant for: quantization.devices
    tp = models.PositiveIntegerField(default=1)
    report = models.JSONField(default=dict)  # the optimizer's, with its layers
    base_figures = models.JSONField(default=dict)  # measured in the same job, on the same machine
    figures = models.JSONField(default=dict)
    rules = models.JSONField(default=list)  # [{metric, value, limit, better, passed}]
    verdict = models.CharField(max_length=8, choices=Verdict.choices, default=Verdict.NONE, blank=True)

    class Meta:
        ordering = ["created_at"]

    def __str__(self) -> str:
        return f"{self.scheme_label} of {self.base}"
