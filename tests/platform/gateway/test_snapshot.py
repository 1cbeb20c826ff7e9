import json

import pytest
from tursiops.gateway import snapshot as snap


def sample(**changes):
    fields = {
        "version": 41,
        "generated_at": 1764400000.0,
        "keys": {"ab" * 32: snap.KeyEntry(id="k1", team="t1", models=("smollm2",), rpm=60)},
        "routes": (
            snap.RouteEntry(
                team="t1",
                name="smollm2",
                deployment="d1",
                context_length=8192,
                instances=(snap.InstanceEntry(id="i1", url="http://127.0.0.1:41011", token="secret-token", epoch=3),),
            ),
            snap.RouteEntry(team="t2", name="smollm2", deployment="d2", reason="Starting."),
        ),
    }
    return snap.Snapshot(**(fields | changes))


def test_sealed_snapshot_comes_back_equal_and_hides_tokens():
    sealed = snap.seal(sample())
    assert b"secret-token" not in sealed
    assert snap.unseal(sealed) == sample()


def test_the_json_is_the_contract():
    body = json.loads(snap.encode(sample()))
    assert body["v"] == 1
    assert body["keys"]["ab" * 32] == {
        "id": "k1",
        "team": "t1",
        "name": "",
        "models": ["smollm2"],
        "rpm": 60,
        "tpm": None,
        "parallel": None,
        "consents": False,
        "expires_at": None,
    }
    assert body["routes"][0]["instances"][0]["url"] == "http://127.0.0.1:41011"


def test_names_are_looked_up_within_a_team():
    assert sample().by_name["t2", "smollm2"].deployment == "d2"
    assert ("t3", "smollm2") not in sample().by_name
    assert [route.deployment for route in sample().by_team["t1"]] == ["d1"]


def test_fingerprint_tells_content_from_time():
    later = sample(version=42, generated_at=1764400005.0, routes=tuple(reversed(sample().routes)))
    assert snap.fingerprint(later) == snap.fingerprint(sample())
    assert snap.fingerprint(sample(keys={})) != snap.fingerprint(sample())


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"{", "snapshot"),
        (b'{"v": 2}', "format 2"),
        (b'{"v": 1, "routes": [{"team": "t"}]}', "name"),
        (b'{"v": 1, "keys": {"x": {"id": "k", "team": "t", "rpm": "many"}}}', "rpm"),
    ],
)
def test_broken_snapshots_are_named(data, says):
    with pytest.raises(snap.SnapshotError, match=says):
        snap.decode(data)


def test_bytes_of_another_installation_are_refused():
    with pytest.raises(snap.SnapshotError, match="secret-key"):
        snap.unseal(b"gAAAAABnotours")


def test_unknown_fields_are_left_out():
    assert snap.decode(b'{"v": 1, "version": 3, "later": true}').version == 3
