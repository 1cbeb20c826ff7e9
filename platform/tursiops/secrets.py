"""Keys derived from the installation's root secret, and what is made of them. Knows nothing of Django.

The root is `<data>/secret-key`. Each purpose has a key of its own, so that one leak does not open the others:
`instance-token` (Fernet), `snapshot` (Fernet), `internal` (HMAC of bearer tokens between our own processes).
"""

from __future__ import annotations

import base64
import binascii
import functools
import hashlib
import hmac
import json
import secrets
import time
from dataclasses import dataclass

from cryptography.fernet import Fernet, InvalidToken

from tursiops.settings import base

API_KEY_PREFIX = "ts-"
INTERNAL_PREFIX = "tsi."
INTERNAL_LIFETIME_S = 60
_CLOCK_SKEW_S = 5  # processes of one installation may sit on hosts whose clocks differ a little


class SecretError(Exception):
    """Bytes that were not made with this installation's secret, or were changed since."""


def derive(label: str) -> bytes:
    """32 bytes for one purpose: HMAC-SHA256(root secret, label)."""
    return hmac.new(base.SECRET_KEY.encode(), label.encode(), hashlib.sha256).digest()


@functools.cache
def fernet(label: str) -> Fernet:
    return Fernet(base64.urlsafe_b64encode(derive(label)))


def encrypt(label: str, data: bytes) -> bytes:
    return fernet(label).encrypt(data)


def decrypt(label: str, data: bytes) -> bytes:
    """Raises SecretError."""
    try:
        return fernet(label).decrypt(data)
    except InvalidToken:
        raise SecretError(
            f"{label}: not encrypted with this installation's secret-key; was the data folder's secret-key replaced?"
        ) from None


def new_instance_token() -> str:
    """A random bearer token for one start of one instance."""
    return secrets.token_urlsafe(32)


def seal_instance_token(token: str) -> str:
    """`token` as `Instance.token_encrypted` holds it."""
    return encrypt("instance-token", token.encode()).decode()


def open_instance_token(sealed: str) -> str:
    """Raises SecretError."""
    return decrypt("instance-token", sealed.encode()).decode()


@dataclass(frozen=True)
class NewApiKey:
    secret: str  # shown once, stored nowhere
    prefix: str  # what people recognise the key by
    sha256: str  # hex, what is stored


def new_api_key() -> NewApiKey:
    secret = API_KEY_PREFIX + secrets.token_urlsafe(32)
    return NewApiKey(secret=secret, prefix=secret[:9], sha256=hash_api_key(secret))


def hash_api_key(secret: str) -> str:
    """SHA-256 hex. A plain hash is enough for 256 random bits: there is nothing to guess."""
    return hashlib.sha256(secret.encode()).hexdigest()


@dataclass(frozen=True)
class Internal:
    """Who a request of our own processes is made for. Ids are UUID strings."""

    team: str
    user: str
    exp: int  # unix seconds


def sign_internal(team: str, user: str, lifetime_s: int = INTERNAL_LIFETIME_S) -> str:
    """Bearer token `tsi.<payload>.<hmac>` with which the playground calls the gateway for `user`."""
    if not 0 < lifetime_s <= INTERNAL_LIFETIME_S:
        raise ValueError(f"lifetime_s={lifetime_s}: internal tokens live 1 to {INTERNAL_LIFETIME_S} s")
    payload = _b64(json.dumps({"team": team, "user": user, "exp": int(time.time()) + lifetime_s}).encode())
    return f"{INTERNAL_PREFIX}{payload}.{_b64(_internal_mac(payload))}"


def verify_internal(token: str) -> Internal | None:
    """The content of a token that `sign_internal` made and that has not expired; None for anything else."""
    if not token.startswith(INTERNAL_PREFIX):
        return None
    payload, _, mac = token[len(INTERNAL_PREFIX) :].partition(".")
    try:
        if not hmac.compare_digest(_unb64(mac), _internal_mac(payload)):
            return None
        body = json.loads(_unb64(payload))
    except (ValueError, binascii.Error):
        return None
    now = time.time()
    if not now - _CLOCK_SKEW_S <= body["exp"] <= now + INTERNAL_LIFETIME_S + _CLOCK_SKEW_S:
        return None
    return Internal(team=body["team"], user=body["user"], exp=body["exp"])


def _internal_mac(payload: str) -> bytes:
    return hmac.new(derive("internal"), payload.encode(), hashlib.sha256).digest()


def _b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
