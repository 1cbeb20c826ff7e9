"""What the API of quantizations answers."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from tursiops.jobs.serializers import JobSerializer

LEVELS = ("supported", "slow", "unsupported")
PHASES = ("prepare", "environment", "calibrate", "quantize", "write", "evaluate_base", "evaluate")
VERDICTS = ("passed", "failed", "error")


class SupportSerializer(serializers.Serializer[Any]):
    device = serializers.CharField(help_text="cpu, or a GPU's key as h200")
    device_name = serializers.CharField()
    level = serializers.ChoiceField(choices=LEVELS, help_text="slow: it runs, without the gain in speed")
    reason = serializers.CharField()


class SchemeSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment] # a field may be named like an attribute of fields
    explanation = serializers.CharField()
    best_for = serializers.CharField()
    optimizer = serializers.CharField()
    weights = serializers.CharField()
    activations = serializers.CharField()
    kv = serializers.CharField()
    embedding = serializers.CharField()
    needs_data = serializers.BooleanField()
    bits = serializers.FloatField(help_text="Of a quantized weight, its scales counted")
    options_schema = serializers.DictField(help_text="JSON Schema")
    gate = serializers.DictField(child=serializers.FloatField(), help_text="Limits by figure, where none are given")
    support = SupportSerializer(many=True, help_text="The processor, GPUs that nodes have, then others")


class QuantizeProblemSerializer(serializers.Serializer[Any]):
    code = serializers.CharField()
    severity = serializers.ChoiceField(choices=("info", "warning", "error"))
    field = serializers.CharField()
    message = serializers.CharField()
    proposal = serializers.CharField()


class SchemePlanSerializer(serializers.Serializer[Any]):
    scheme = serializers.CharField()
    size_bytes = serializers.IntegerField(help_text="Of its files")
    base_bytes = serializers.IntegerField()
    memory_bytes = serializers.IntegerField(help_text="Of its weights in the engine's memory")
    bits = serializers.FloatField()
    job_memory_bytes = serializers.IntegerField(allow_null=True, help_text="The job's peak, at most")
    disk_bytes = serializers.IntegerField(allow_null=True, help_text="That the job takes")
    seconds = serializers.FloatField(allow_null=True, help_text="Of a job of the same kind; null: none ran yet")
    support = SupportSerializer()
    gate = serializers.DictField(child=serializers.FloatField())
    problems = QuantizeProblemSerializer(many=True)


class CalibrationCountSerializer(serializers.Serializer[Any]):
    samples = serializers.IntegerField()
    tokens = serializers.IntegerField(help_text="Of all rows")
    problems = QuantizeProblemSerializer(many=True)


class KeptTrafficSerializer(serializers.Serializer[Any]):
    rows = serializers.IntegerField()
    bytes = serializers.IntegerField(help_text="Of their text")
    keys = serializers.IntegerField(help_text="Live keys of the team that consent")


class QuantizePlanSerializer(serializers.Serializer[Any]):
    plans = SchemePlanSerializer(many=True)
    calibration = CalibrationCountSerializer(allow_null=True, help_text="null: no scheme needs data")


class LayerProgressSerializer(serializers.Serializer[Any]):
    phase = serializers.ChoiceField(choices=PHASES)
    layer = serializers.CharField(help_text="What is being done, in words")
    layers_done = serializers.IntegerField()
    layers = serializers.IntegerField()
    loss = serializers.FloatField(allow_null=True)
    fallbacks = serializers.IntegerField()
    elapsed_s = serializers.FloatField()
    eta_s = serializers.FloatField(allow_null=True)
    resumed_at = serializers.IntegerField(help_text="Layers that an earlier attempt had finished")


class QuantizationFiguresSerializer(serializers.Serializer[Any]):
    """null: not measured."""

    size_bytes = serializers.IntegerField(allow_null=True)
    memory_bytes = serializers.IntegerField(allow_null=True, help_text="Of the weights, by the engine's own count")
    decode_tokens_per_s = serializers.FloatField(allow_null=True, help_text="One request")
    prefill_tokens_per_s = serializers.FloatField(allow_null=True, help_text="One prompt of 512 tokens")
    perplexity = serializers.FloatField(allow_null=True, help_text="By tokens, windows of 512 of WikiText-2's test set")
    perplexity_ratio = serializers.FloatField(allow_null=True, help_text="To the base's; 1 is lossless")
    same_top = serializers.FloatField(allow_null=True, help_text="Share of places with the base's likeliest token")
    kl = serializers.FloatField(allow_null=True, help_text="KL(base ‖ version), nats per token")
    dtype = serializers.CharField(allow_null=True, help_text="Of what is not quantized, while it was measured")
    measured_on = serializers.CharField(allow_null=True, help_text="cpu, or the GPU's name")


class RuleSerializer(serializers.Serializer[Any]):
    metric = serializers.CharField()
    value = serializers.FloatField(allow_null=True)
    limit = serializers.FloatField()
    better = serializers.ChoiceField(choices=("lower", "higher"))
    passed = serializers.BooleanField()


class DeploySerializer(serializers.Serializer[Any]):
    device = serializers.CharField()
    gpus_per_replica = serializers.IntegerField()
    options = serializers.DictField(help_text="Of the engine, beyond what the files say")


class QuantizationSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    base = serializers.UUIDField()
    scheme = serializers.CharField()
    scheme_label = serializers.CharField()
    options = serializers.DictField()
    keep = serializers.ListField(child=serializers.CharField())
    calibration = serializers.DictField()
    gate = serializers.DictField(child=serializers.FloatField())
    device = serializers.CharField()
    tp = serializers.IntegerField()
    job = JobSerializer()
    version = serializers.UUIDField(allow_null=True, help_text="null: cancelled, or deleted since")
    version_label = serializers.CharField()
    version_state = serializers.CharField()
    progress = LayerProgressSerializer(allow_null=True)
    figures = QuantizationFiguresSerializer(allow_null=True)
    base_figures = QuantizationFiguresSerializer(
        allow_null=True, help_text="Of the base, measured in the same job on the same machine"
    )
    verdict = serializers.ChoiceField(
        choices=VERDICTS, allow_null=True, help_text="failed: a limit was not kept; error: not measured"
    )
    rules = RuleSerializer(many=True)
    fallbacks = serializers.IntegerField(help_text="Products that were not made as asked")
    reason = serializers.CharField()
    deploy = DeploySerializer(required=False, help_text="What a deployment of it is to ask for")
    created_at = serializers.DateTimeField()


class DoneLayerSerializer(serializers.Serializer[Any]):
    index = serializers.IntegerField()
    name = serializers.CharField()
    scheme = serializers.CharField()
    method = serializers.CharField()
    loss = serializers.FloatField(
        allow_null=True, help_text="Squared error of its outputs, as a share of their squares"
    )
    rtn_loss = serializers.FloatField(allow_null=True, help_text="That rounding to nearest would have")
    damping = serializers.FloatField(allow_null=True)
    sqnr_db = serializers.FloatField(allow_null=True, help_text="Of its weights")
    local_error = serializers.FloatField(allow_null=True, help_text="Of its outputs, relative")
    accumulated_error = serializers.FloatField(allow_null=True)
    bits = serializers.FloatField(allow_null=True)
    seconds = serializers.FloatField(allow_null=True)
    fallback = serializers.CharField()


class SensitivitySerializer(serializers.Serializer[Any]):
    layer = serializers.CharField()
    kl = serializers.FloatField()
    bytes = serializers.IntegerField()


class QuantizationDetailSerializer(QuantizationSerializer):
    layers = DoneLayerSerializer(many=True)
    sensitivity = SensitivitySerializer(many=True)
    report = serializers.DictField(help_text="Of the optimizer, all but its layers")
    comparison = serializers.UUIDField(
        required=False,
        allow_null=True,
        help_text="Newest job that compared it with its base, layer by layer: POST versions/{id}/compare",
    )


class QuantizationBaseSerializer(serializers.Serializer[Any]):
    version = serializers.UUIDField()
    label = serializers.CharField()  # type: ignore[assignment] # as above
    figures = QuantizationFiguresSerializer(allow_null=True)


class QuantizationTableSerializer(serializers.Serializer[Any]):
    base = QuantizationBaseSerializer()
    rows = QuantizationSerializer(many=True)
