"""What the API of quantizations takes."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from tursiops.core.inputs import Input
from tursiops.evaluations.inputs import OwnRows
from tursiops.quantization import devices, schemes
from tursiops.quantization.asked import LONGEST_KEPT, MOST_KEPT, SOURCES, Asked, Calibration, Choice
from tursiops.registry.models import Corpus

MOST_SCHEMES = 16


class CalibrationInput(OwnRows):
    source = serializers.ChoiceField(  # type: ignore[assignment] # a field may be named like an attribute of fields
        choices=SOURCES,
        default="builtin",
        help_text="builtin: the texts that come with Tursiops; gateway: kept prompts of keys that consented to it",
    )
    corpus = serializers.PrimaryKeyRelatedField(
        queryset=Corpus.objects.select_related("blob"),
        allow_null=True,
        default=None,
        help_text="Of source corpus: text with one document on a line, or JSONL of text, messages, or prompt and "
        "completion",
    )
    samples = serializers.IntegerField(min_value=1, max_value=4096, default=128, help_text="Rows")
    tokens = serializers.IntegerField(min_value=1, max_value=8192, default=512, help_text="Of each row")

    def validate(self, given: dict[str, Any]) -> dict[str, Any]:
        if (given["source"] == "corpus") != (given["corpus"] is not None):
            message = (
                "Give a corpus." if given["source"] == "corpus" else "A corpus is given, but the source is another."
            )
            raise serializers.ValidationError({"corpus": [message]})
        return given


class SchemeInput(Input):
    scheme = serializers.CharField(max_length=50, help_text="A name of GET quantization/schemes")
    options = serializers.DictField(default=dict, help_text="As the scheme's options_schema has them")
    gate = serializers.DictField(
        child=serializers.FloatField(),
        allow_null=True,
        default=None,
        help_text="Limits by figure: perplexity_ratio, same_top, kl, fallbacks. Left out: the scheme's own; {}: none",
    )
    keep = serializers.ListField(
        child=serializers.CharField(max_length=LONGEST_KEPT),
        max_length=MOST_KEPT,
        default=list,
        help_text="Layers that stay in 16 bits, beside those of the options: names, patterns with *, or re:…",
    )


class QuantizeInput(Input):
    schemes = serializers.ListField(child=SchemeInput(), min_length=1, max_length=MOST_SCHEMES)
    device = serializers.CharField(max_length=32, default="cpu", help_text="What it is to be served on: Support.device")
    tp = serializers.IntegerField(min_value=1, max_value=64, default=1, help_text="GPUs that share one instance")
    calibration = CalibrationInput(default=dict)

    def asked(self) -> Asked:
        """Of a valid input. Raises TursiopsError for names that are not known."""
        given = self.validated_data
        choices = [
            Choice(
                schemes.scheme(each["scheme"], f"schemes.{index}.scheme"),
                dict(each["options"]),
                None if each["gate"] is None else dict(each["gate"]),
                tuple(each["keep"]),
            )
            for index, each in enumerate(given["schemes"])
        ]
        calibration = Calibration(**given["calibration"]) if given["calibration"] else Calibration()
        return Asked(choices, devices.device(given["device"]), given["tp"], calibration)
