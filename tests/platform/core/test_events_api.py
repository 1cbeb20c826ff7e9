import uuid

import pytest
from django.db import transaction
from tursiops.core import events

from tests.platform.api_bases import assert_error_shape

URL = "/api/v1/events"
pytestmark = pytest.mark.django_db


def record(team, subject_type="model", subject_id=None, text="changed"):
    with transaction.atomic():
        return events.record(
            team=team, kind="k", subject_type=subject_type, subject_id=subject_id or uuid.uuid4(), text=text
        )


def test_events_after_an_id_in_order(api, team, viewer):
    for number in range(5):
        record(team, text=str(number))
    body = api(viewer).get(URL, {"after": 2, "limit": 2}).json()
    assert [event["id"] for event in body["events"]] == [3, 4]
    assert body["last_event_id"] == 5


def test_without_an_id_the_newest_come(api, team, viewer):
    for number in range(5):
        record(team, text=str(number))
    body = api(viewer).get(URL, {"limit": 2}).json()
    assert [event["text"] for event in body["events"]] == ["3", "4"]


def test_of_one_subject(api, team, viewer):
    subject = uuid.uuid4()
    record(team)
    record(team, "deployment", subject)
    record(team, "model", subject)
    body = api(viewer).get(URL, {"subject_type": "deployment", "subject_id": str(subject)}).json()
    assert [event["id"] for event in body["events"]] == [2]


def test_own_team_only(api, team, other_team, viewer):
    record(other_team)
    assert api(viewer).get(URL).json() == {"events": [], "last_event_id": 0}
    assert_error_shape(api(None).get(URL), 401)


@pytest.mark.parametrize("query", [{"after": "x"}, {"after": -1}, {"limit": 0}, {"limit": 501}, {"subject_id": "1"}])
def test_bad_queries_name_the_field(api, viewer, query):
    assert list(assert_error_shape(api(viewer).get(URL, query), 400)["fields"]) == list(query)
