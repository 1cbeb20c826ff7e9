from __future__ import annotations

from typing import Any

from rest_framework import serializers

from tursiops.deployments.models import InstanceState
from tursiops.fleet.health import NodeState


class GpuSerializer(serializers.Serializer[Any]):
    index = serializers.IntegerField()
    name = serializers.CharField()
    uuid = serializers.CharField()
    memory_total = serializers.IntegerField(help_text="Bytes")
    memory_used = serializers.IntegerField(help_text="Bytes")
    utilization = serializers.FloatField(allow_null=True, help_text="0…1")


class NodeInstanceSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    deployment = serializers.CharField()
    state = serializers.ChoiceField(choices=InstanceState.choices)


class NodeSerializer(serializers.Serializer[Any]):
    id = serializers.UUIDField()
    name = serializers.CharField()
    state = serializers.ChoiceField(choices=[(item.value, item.value) for item in NodeState])
    reason = serializers.CharField()
    address = serializers.CharField()
    backend = serializers.CharField()
    heartbeat_at = serializers.DateTimeField(allow_null=True)
    heartbeat_age_s = serializers.FloatField(allow_null=True)
    cordoned = serializers.BooleanField()
    draining = serializers.BooleanField()
    cpu_count = serializers.IntegerField()
    memory_total = serializers.IntegerField(help_text="Bytes")
    memory_available = serializers.IntegerField(help_text="Bytes")
    disk_free = serializers.IntegerField(help_text="Bytes, where the file store lies")
    versions = serializers.DictField(child=serializers.CharField())
    gpus = GpuSerializer(many=True)
    instances = NodeInstanceSerializer(many=True)
