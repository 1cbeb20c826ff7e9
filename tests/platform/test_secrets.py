import hashlib
import time

import pytest
from tursiops import secrets


def test_each_label_has_its_own_key():
    assert len(secrets.derive("snapshot")) == 32
    assert secrets.derive("snapshot") == secrets.derive("snapshot")
    assert secrets.derive("snapshot") != secrets.derive("internal")


def test_instance_token_is_sealed_and_opened():
    token = secrets.new_instance_token()
    sealed = secrets.seal_instance_token(token)
    assert token not in sealed
    assert secrets.open_instance_token(sealed) == token


def test_bytes_of_another_label_are_refused():
    with pytest.raises(secrets.SecretError, match="instance-token"):
        secrets.decrypt("instance-token", secrets.encrypt("snapshot", b"x"))


def test_api_key_has_256_bits_and_is_known_by_its_hash():
    key = secrets.new_api_key()
    assert key.secret.startswith("ts-")
    assert len(key.secret) == 3 + 43
    assert key.prefix == key.secret[:9]
    assert key.sha256 == hashlib.sha256(key.secret.encode()).hexdigest()
    assert secrets.new_api_key().secret != key.secret


def test_internal_token_names_team_and_user():
    who = secrets.verify_internal(secrets.sign_internal("team-1", "user-1"))
    assert (who.team, who.user) == ("team-1", "user-1")


def test_internal_token_expires(monkeypatch):
    token = secrets.sign_internal("team-1", "user-1", lifetime_s=30)
    now = time.time()
    monkeypatch.setattr(secrets.time, "time", lambda: now + 40)
    assert secrets.verify_internal(token) is None


@pytest.mark.parametrize("bad", ["", "tsi.", "tsi.a.b", "tsi.%%.%%", "tsi.é.é", "ts-abc", "tsi." + "A" * 1000])
def test_strange_internal_tokens_are_refused(bad):
    assert secrets.verify_internal(bad) is None


def test_changed_internal_token_is_refused():
    token = secrets.sign_internal("team-1", "user-1")
    head, payload, mac = token.split(".")
    forged = secrets._b64(b'{"team": "team-2", "user": "user-1", "exp": 9999999999}')
    assert secrets.verify_internal(f"{head}.{forged}.{mac}") is None
    assert secrets.verify_internal(f"{head}.{payload}.{mac[:-2]}AA") is None
