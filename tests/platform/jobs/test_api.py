"""REST of jobs: the shared bases, the log by byte offset, cancel and retry."""

import pytest
from tursiops.jobs import logs
from tursiops.jobs.models import JobState

from tests import factories
from tests.platform.api_bases import GetBase, ListBase, assert_error_shape

FIELDS = {
    "id", "kind", "title", "state", "reason", "progress", "progress_text", "attempt", "max_attempts", "subject_type",
    "subject_id", "requested_by", "node_name", "created_at", "started_at", "finished_at", "report", "error",
}  # fmt: skip


class TestJobs(ListBase, GetBase):
    url = "/api/v1/jobs"
    make = staticmethod(factories.make_job)
    list_queries = 6  # of which session, user, team and role are 4


@pytest.fixture
def client(api, member):
    return api(member)


def test_job_has_the_fields_of_the_contract(client, team, member):
    job = factories.make_job(team, requested_by=member)
    body = client.get(f"/api/v1/jobs/{job.pk}").json()
    assert set(body) == FIELDS
    assert body["requested_by"] == member.username


def test_list_filters_by_state_and_kind(client, team):
    running = factories.make_job(team, state=JobState.RUNNING)
    factories.make_job(team, kind="other.kind")
    assert [row["id"] for row in client.get("/api/v1/jobs?state=running").json()["results"]] == [str(running.pk)]
    assert client.get("/api/v1/jobs?kind=other.kind").json()["count"] == 1
    assert_error_shape(client.get("/api/v1/jobs?state=lost"), 400)


def test_log_is_read_by_byte_offset_without_cutting_characters(client, team):
    job = factories.make_job(team, state=JobState.RUNNING)
    logs.live_path(job).write_bytes("héllo\n".encode()[:2])  # half of é is written
    url = f"/api/v1/jobs/{job.pk}/log"
    page = client.get(url).json()
    assert page == {"text": "h", "next": 1, "ended": False}
    logs.live_path(job).write_bytes("héllo\n".encode())
    page = client.get(f"{url}?after=1").json()
    assert page == {"text": "éllo\n", "next": 7, "ended": False}
    assert client.get(f"{url}?after=7").json() == {"text": "", "next": 7, "ended": False}
    job.state = JobState.SUCCEEDED
    job.save()
    assert client.get(f"{url}?after=7").json()["ended"] is True


@pytest.mark.parametrize("after", ["-1", "many", "1.5"])
def test_log_refuses_a_bad_offset(client, team, after):
    job = factories.make_job(team)
    error = assert_error_shape(client.get(f"/api/v1/jobs/{job.pk}/log?after={after}"), 400)
    assert "after" in error["fields"]


def test_log_offset_past_the_end_is_the_end(client, team):
    job = factories.make_job(team)
    assert client.get(f"/api/v1/jobs/{job.pk}/log?after=999999").json() == {"text": "", "next": 0, "ended": False}


def test_cancel_and_retry(client, team):
    job = factories.make_job(team)
    assert client.post(f"/api/v1/jobs/{job.pk}/cancel").json()["state"] == "cancelled"
    assert_error_shape(client.post(f"/api/v1/jobs/{job.pk}/cancel"), 409)
    assert client.post(f"/api/v1/jobs/{job.pk}/retry").json()["state"] == "queued"
    assert_error_shape(client.post(f"/api/v1/jobs/{job.pk}/retry"), 409)


@pytest.mark.parametrize("action", ["cancel", "retry"])
def test_actions_need_a_member_of_the_team(api, viewer, outsider, team, action):
    job = factories.make_job(team)
    assert_error_shape(api(viewer).post(f"/api/v1/jobs/{job.pk}/{action}"), 403)
    assert_error_shape(api(outsider).post(f"/api/v1/jobs/{job.pk}/{action}"), 404)
    job.refresh_from_db()
    assert job.state == JobState.QUEUED


def test_path_that_is_no_id_is_not_found(client):
    assert client.get("/api/v1/jobs/1").status_code == 404
