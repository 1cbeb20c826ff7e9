from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from tursiops.core import selectors
from tursiops.core.inputs import Input
from tursiops.core.views import DeclaredView


class EventQuerySerializer(Input):
    after = serializers.IntegerField(
        min_value=0, required=False, help_text="Events above this id, oldest first; without it: the newest ones"
    )
    subject_type = serializers.CharField(default="", max_length=32, allow_blank=True)
    subject_id = serializers.UUIDField(default=None, allow_null=True)
    limit = serializers.IntegerField(min_value=1, max_value=500, default=100)


class EventSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField(help_text="Rises by one per event of the team")
    kind = serializers.CharField()
    subject_type = serializers.CharField()
    subject_id = serializers.UUIDField()
    text = serializers.CharField(help_text="One sentence for people")
    payload = serializers.DictField(help_text="The subject as its list shows it")
    actor = serializers.CharField(allow_blank=True)
    created_at = serializers.DateTimeField()


class EventPageSerializer(serializers.Serializer[Any]):
    events = EventSerializer(many=True)
    last_event_id = serializers.IntegerField(help_text="Follow the live socket from here")


class EventsView(DeclaredView):
    queries = {"get": EventQuerySerializer}

    @extend_schema(operation_id="events_list", parameters=[EventQuerySerializer], responses=EventPageSerializer)
    def get(self, request: Request) -> Response:
        """Events of the current team, in order."""
        chosen = self.valid_query()
        team = request.team  # type: ignore[attr-defined] # set by middleware or key
        # Read before the rows: an event written in between is then followed, not missed.
        last = selectors.last_event_id(team)
        read = selectors.events_after if "after" in chosen else selectors.latest_events
        rows = read(user=request.user, team=team, **chosen)
        return Response({"events": [selectors.event_row(row) for row in rows], "last_event_id": last})
