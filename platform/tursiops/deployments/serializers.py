"""Input and output of the deployments API. Output rows are made by `rows`; here they are typed for the schema."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from tursiops.core.inputs import Input
from tursiops.deployments.derive import DeploymentState
from tursiops.deployments.models import Desired, InstanceState
from tursiops.registry.models import Version


class RejectedSerializer(serializers.Serializer[Any]):
    node = serializers.CharField()
    reason = serializers.CharField()


class InstanceSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    role = serializers.CharField()
    index = serializers.IntegerField()
    state = serializers.ChoiceField(choices=InstanceState.choices)
    reason = serializers.CharField()
    desired = serializers.ChoiceField(choices=Desired.choices)
    node = serializers.CharField(allow_null=True)
    epoch = serializers.IntegerField()
    progress = serializers.FloatField(help_text="0…1 while the model loads")
    restarts = serializers.IntegerField(help_text="Failures in a row")
    next_start_at = serializers.DateTimeField(allow_null=True)
    ready_at = serializers.DateTimeField(allow_null=True)
    seen_at = serializers.DateTimeField(allow_null=True)
    facts = serializers.DictField()
    placement = serializers.DictField()
    revision_number = serializers.IntegerField()


class RevisionSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    number = serializers.IntegerField()
    version = serializers.UUIDField()
    version_label = serializers.CharField()
    draft_version = serializers.UUIDField(allow_null=True, help_text="Guesses tokens for `version`")
    draft_label = serializers.CharField(allow_null=True)
    engine = serializers.CharField()
    topology = serializers.DictField()
    device = serializers.CharField()
    dtype = serializers.CharField()
    max_model_len = serializers.IntegerField(help_text="Tokens; 0: the model's own")
    max_num_seqs = serializers.IntegerField(help_text="0: the engine's default")
    kv_cache_bytes = serializers.IntegerField(help_text="0: the engine decides")
    node_name = serializers.CharField()
    gpu_indices = serializers.ListField(child=serializers.IntegerField())
    options = serializers.DictField()
    created_at = serializers.DateTimeField()
    created_by = serializers.CharField(allow_null=True)
    current = serializers.BooleanField()


class DeploymentSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    description = serializers.CharField()
    desired = serializers.ChoiceField(choices=Desired.choices)
    state = serializers.ChoiceField(choices=[(item.value, item.value) for item in DeploymentState])
    reason = serializers.CharField()
    replicas = serializers.DictField(child=serializers.IntegerField())
    ready = serializers.DictField(child=serializers.IntegerField())
    revision = RevisionSerializer(allow_null=True)
    instances = InstanceSerializer(many=True)
    created_at = serializers.DateTimeField()
    endpoint = serializers.CharField()


class UpdatedDeploymentSerializer(DeploymentSerializer):
    restarts = serializers.ListField(
        child=serializers.CharField(), help_text="Fields whose change restarts the instances, one after another"
    )


class _PlaceFields(Input):
    """What is to run, and where. `topology` is made of `gpus_per_replica`."""

    version = serializers.PrimaryKeyRelatedField(queryset=Version.objects.none())
    draft_version = serializers.PrimaryKeyRelatedField(
        queryset=Version.objects.none(),
        required=False,
        allow_null=True,
        help_text="A smaller version, or a head, that guesses tokens where options.speculation lets it",
    )
    engine = serializers.CharField(max_length=50, required=False)
    device = serializers.ChoiceField(choices=["auto", "cpu", "cuda"], required=False)
    node_name = serializers.CharField(max_length=100, allow_blank=True, required=False)
    gpu_indices = serializers.ListField(child=serializers.IntegerField(min_value=0), max_length=64, required=False)
    gpus_per_replica = serializers.IntegerField(min_value=1, max_value=64, required=False)
    options = serializers.DictField(required=False)

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        """Versions of the caller's own team only."""
        fields = super().get_fields()
        view = self.context.get("view")
        if view is not None and not getattr(view, "swagger_fake_view", False):
            visible = Version.objects.restrict(view.request.user, team=view.team).select_related("model")
            for name in ("version", "draft_version"):
                fields[name].queryset = visible  # type: ignore[attr-defined] # PrimaryKeyRelatedField
        return fields

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        gpus = attrs.pop("gpus_per_replica", None)
        if gpus is not None:
            attrs["topology"] = {role: {"gpus": gpus} for role in ("unified", "prefill", "decode")}
        return attrs


class _RevisionFields(_PlaceFields):
    """What of a revision can be asked for."""

    dtype = serializers.CharField(max_length=16, required=False)
    max_model_len = serializers.IntegerField(min_value=0, max_value=100_000_000, required=False)
    max_num_seqs = serializers.IntegerField(min_value=0, max_value=100_000, required=False)
    kv_cache_bytes = serializers.IntegerField(min_value=0, max_value=2**50, required=False)


class CreateDeploymentSerializer(_RevisionFields):
    name = serializers.CharField(max_length=100)
    description = serializers.CharField(allow_blank=True, max_length=2000, required=False)
    replicas = serializers.DictField(child=serializers.IntegerField())
    force = serializers.BooleanField(required=False, help_text="Create it even where no replica fits now")
    override = serializers.CharField(
        max_length=500, required=False, help_text="An admin's reason for going past a gate; audited"
    )


class UpdateDeploymentSerializer(_RevisionFields):
    version = serializers.PrimaryKeyRelatedField(queryset=Version.objects.none(), required=False)
    description = serializers.CharField(allow_blank=True, max_length=2000, required=False)
    replicas = serializers.DictField(child=serializers.IntegerField(), required=False)
    force = serializers.BooleanField(required=False)
    override = serializers.CharField(
        max_length=500, required=False, help_text="An admin's reason for going past a gate; audited"
    )


class EstimateRequestSerializer(_RevisionFields):
    name = serializers.CharField(max_length=100, allow_blank=True, required=False)
    description = serializers.CharField(allow_blank=True, required=False)
    replicas = serializers.DictField(child=serializers.IntegerField(), required=False)


class MemorySerializer(serializers.Serializer[Any]):
    """Bytes of one instance."""

    weights = serializers.IntegerField()
    kv_cache = serializers.IntegerField()
    activations = serializers.IntegerField()
    verification = serializers.IntegerField(help_text="Logits of passes that check guesses; 0 without speculation")
    overhead = serializers.IntegerField()
    total = serializers.IntegerField()
    available = serializers.IntegerField()
    host = serializers.IntegerField(help_text="Host memory beside a GPU, for offloaded weights; not in `total`")


class EstimateSerializer(serializers.Serializer[Any]):
    fits = serializers.BooleanField()
    reason = serializers.CharField()
    suggestions = serializers.ListField(child=serializers.CharField())
    memory = MemorySerializer()
    kv_tokens = serializers.IntegerField()
    node = serializers.CharField(allow_null=True)
    rejected = RejectedSerializer(many=True)


def _numbers(largest: int, text: str) -> serializers.ListField:
    child = serializers.IntegerField(min_value=1, max_value=largest)
    return serializers.ListField(child=child, min_length=1, max_length=12, required=False, help_text=text)


class CapacityRequestSerializer(_PlaceFields):
    """Where each of `dtypes` × `contexts` × `concurrencies` fits."""

    name = serializers.CharField(
        max_length=100,
        allow_blank=True,
        required=False,
        help_text="A deployment that is to be replaced: its memory is free",
    )
    dtypes = serializers.ListField(
        child=serializers.CharField(max_length=16),
        max_length=12,
        required=False,
        help_text="Left out: all of the engine",
    )
    contexts = _numbers(100_000_000, "Tokens of one request; left out: 2,048, 8,192, 32,768 and the model's own")
    concurrencies = _numbers(100_000, "Requests at once; left out: 1, 4, 16 and 64")
    memory_bytes = serializers.IntegerField(
        min_value=1,
        max_value=2**50,
        required=False,
        help_text="Free memory of a device that no node has, instead of the nodes; what `device` says, else a CPU",
    )


class CombinationSerializer(serializers.Serializer[Any]):
    """`max_num_seqs` requests of `max_model_len` tokens, all of full length at once."""

    max_model_len = serializers.IntegerField(help_text="Tokens; 0: no length fits")
    max_num_seqs = serializers.IntegerField(help_text="0: not one request fits")
    fits = serializers.BooleanField()
    total = serializers.IntegerField(help_text="Bytes needed; where nothing fits, by the least")
    kv_cache_bytes = serializers.IntegerField(help_text="Of it; the setting that makes room for all of them")
    reason = serializers.CharField(help_text="Why not; empty where it fits")


class DtypeCapacitySerializer(serializers.Serializer[Any]):
    dtype = serializers.CharField()
    fits = serializers.BooleanField(help_text="At least one short request")
    reason = serializers.CharField(help_text="Why not, or what limits it")
    weights = serializers.IntegerField(help_text="Bytes")
    max_model_len = serializers.IntegerField(help_text="Tokens of one request alone; 0: none")
    by_context = CombinationSerializer(many=True, help_text="For each context, the largest concurrency")
    by_concurrency = CombinationSerializer(many=True, help_text="For each concurrency, the longest context")
    combinations = CombinationSerializer(many=True)


class CapacityPlaceSerializer(serializers.Serializer[Any]):
    node = serializers.CharField(allow_null=True)
    device = serializers.CharField()
    gpu_indices = serializers.ListField(child=serializers.IntegerField())
    available = serializers.IntegerField(help_text="Bytes that one instance can have")
    dtypes = DtypeCapacitySerializer(many=True)


class CapacitySerializer(serializers.Serializer[Any]):
    context_length = serializers.IntegerField(help_text="Tokens that the model was made for")
    contexts = serializers.ListField(child=serializers.IntegerField())
    concurrencies = serializers.ListField(child=serializers.IntegerField())
    places = CapacityPlaceSerializer(many=True)
    rejected = RejectedSerializer(many=True)


class ScaleSerializer(Input):
    replicas = serializers.DictField(child=serializers.IntegerField())


class RollbackSerializer(Input):
    revision = serializers.IntegerField(min_value=1)


class InstanceLogQuerySerializer(Input):
    after = serializers.IntegerField(
        min_value=0, required=False, help_text="Byte offset to read from; left out: the last 64 KB"
    )


class EventsQuerySerializer(Input):
    after = serializers.IntegerField(
        min_value=0, required=False, help_text="Events above this id, oldest first; without it: the newest ones"
    )
    limit = serializers.IntegerField(min_value=1, max_value=500, default=100)


class EngineSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    label = serializers.CharField()  # type: ignore[assignment] # a field of that name, not the serializer's own
    capabilities = serializers.DictField()
    options_schema = serializers.DictField()
