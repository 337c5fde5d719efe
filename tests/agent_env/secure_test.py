"""A server behind a token and TLS, as it stands on a box that others can reach."""

from __future__ import annotations

import datetime
import ipaddress
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from agent_env import AgentEnv, build_app
from agent_env.bundle import load_bundle
from agent_env.client._dial import TOKEN_VARIABLE
from agent_env.errors import ProtocolError, Unauthorized
from agent_env.server.guard import Guard

from .asgi import serving
from .conftest import COUNTER

TOKEN = "correct-horse-battery"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for loopback that only who is told trusts, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "loopback")])
    today = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(today)
        .not_valid_after(today.replace(year=2099))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(made.public_bytes(pem))
    (folder / "key.pem").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "cert.pem", folder / "key.pem"


@pytest.fixture(scope="module")
def url(certificate: tuple[Path, Path]) -> Iterator[str]:
    """An env server that wants a token, over TLS."""
    cert, key = certificate
    app = Guard(build_app(load_bundle(COUNTER)), TOKEN)
    with serving(app, ssl_certfile=cert, ssl_keyfile=key) as port:
        yield f"https://127.0.0.1:{port}"


@pytest.fixture
def trusted(certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("given", ["argument", "variable"])
def test_a_token_lets_in_over_tls(url: str, given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if given == "variable":
        monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    with AgentEnv(url, token=TOKEN if given == "argument" else None) as env:
        env.check(sessions=2)
        one = pickle.loads(pickle.dumps(env.factory_for("train")))()
        one.reset(**env.rows("train")[0])
        one.add(n=5)
        assert one.get_reward() == 0.5
        one._session.close()


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("token, said", [(None, "wants a token"), ("guess", "another token")])
def test_without_the_token_the_error_says_where_it_goes(
    url: str, token: str | None, said: str
) -> None:
    with AgentEnv(url, token=token) as env:
        for call in (env.session().reset, lambda: env.splits, lambda: env.check(sessions=1)):
            with pytest.raises(Unauthorized, match=f"{said}.*: set {TOKEN_VARIABLE}"):
                call()


def test_a_server_that_nobody_vouches_for_is_no_server(url: str) -> None:
    with AgentEnv(url, token=TOKEN) as env:
        for call in (env.session().reset, lambda: env.splits):
            with pytest.raises(ProtocolError, match="SSL_CERT_FILE"):
                call()


def test_a_token_is_never_shown() -> None:
    env = AgentEnv("https://127.0.0.1:1", token=TOKEN)
    shown = repr(env) + repr(env._site.address) + repr(vars(env._site))
    assert TOKEN not in shown
    with pytest.raises(ValueError, match="no header can carry") as refused:
        AgentEnv("https://127.0.0.1:1", token="two\nlines")
    assert "two" not in str(refused.value)


@pytest.mark.parametrize("address", ["127.0.0.1:8000", "ftp://host", "http://"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="address"):
        AgentEnv(address)
