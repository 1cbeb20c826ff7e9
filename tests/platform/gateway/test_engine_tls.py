"""The client to engines behind TLS, on both event loops."""

import asyncio
import datetime
import ipaddress
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tursiops.gateway import engine_client
from tursiops.gateway.engine_client import Unreachable

from tests.engine_wire import CHUNKED, HANG_UP, HOLD, OK, ask, engine, failing, whole
from tests.engine_wire import event_loop_policy as event_loop_policy

# The hook that replaces this fixture would hold for every test of the session.
pytestmark = pytest.mark.filterwarnings("ignore:Overriding the .event_loop_policy.:pytest.PytestDeprecationWarning")


@pytest.fixture
def tls(tmp_path, monkeypatch):
    """A server's context, whose certificate this process trusts."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "engine")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    file, secret = tmp_path / "engine.pem", tmp_path / "engine.key"
    file.write_bytes(certificate.public_bytes(pem))
    secret.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, secret)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    engine_client._tls.cache_clear()
    yield context
    engine_client._tls.cache_clear()


async def test_tls(tls):
    async with engine(OK, CHUNKED, HANG_UP, OK, tls=tls) as (told, client, url):
        assert await ask(client, url) == (200, b"hi")
        assert len((await ask(client, url))[1]) == 35
        assert told.connections == 1
        assert await ask(client, url) == (200, b"hi"), "a kept connection that the engine closed"
        assert told.connections == 2


async def test_slow_reader_over_tls(tls):
    size = 20_000_000

    async with engine(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size, tls=tls) as (
        _,
        client,
        url,
    ):
        for _ in range(2):
            response = await client.post(url, b"", {})
            await asyncio.sleep(0.2)
            assert response._held < 2 * 2**20
            assert len(await whole(response)) == size


async def test_engine_whose_certificate_is_not_trusted(tls, monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE")
    async with engine(OK, tls=tls) as (told, client, url):
        assert "CertVerification" in await failing(client, url, Unreachable)
        assert not told.requests


async def test_tls_that_never_begins(tls):
    async with engine(HOLD, connect_timeout=0.2) as (_, client, url):
        assert "TimeoutError" in await failing(client, url.replace("http:", "https:"), Unreachable)
