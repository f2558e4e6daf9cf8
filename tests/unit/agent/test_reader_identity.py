"""Readers' identities: made from tokens, kept in private files, with a clear error when they are none."""

import pickle
import time
from pathlib import Path

import pytest

from agiledart_agent.identity.identity import Identity
from agiledart_agent.identity.reader_identity import identity_from_token, read_identity, write_identity
from agiledart_agent.identity.tokens import create_token
from agiledart_cli.main import run_cli
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.grants import Role, verify_chain
from agiledart_sink_log.client import SinkLogClient, SinkLogError
from agiledart_transport.certificates import check_signature, public_bytes


@pytest.fixture
def issuer(tmp_path: Path) -> Identity:
    identity = Identity.load_or_create(tmp_path / "state")
    identity.create_network()
    identity.keep_network()
    return identity


def token(issuer: Identity, role: Role = "reader", scope: str = "sink:routes") -> str:
    return create_token(
        issuer.issuer(), now_seconds=int(time.time()), role=role, scope=scope, addresses=("10.0.0.1:9464",)
    )


def test_a_token_makes_the_same_member_each_time(issuer: Identity) -> None:
    from cryptography.hazmat.primitives.asymmetric import ed25519

    text = token(issuer)
    first, addresses = identity_from_token(text)
    second, _ = identity_from_token(text)
    assert addresses == ("10.0.0.1:9464",)
    assert first.seed == second.seed
    assert first.token
    key = public_bytes(ed25519.Ed25519PrivateKey.from_private_bytes(first.seed))
    grant = verify_chain(issuer.network, first.chain, key, int(time.time()), check_signature)
    assert (grant.role, grant.scope) == ("reader", "sink:routes")


def test_tokens_of_agents_are_refused(issuer: Identity) -> None:
    with pytest.raises(OperationFailed, match="needs one of the role reader"):
        identity_from_token(token(issuer, "agent", ""))


def test_a_file_restores_the_identity_and_is_private(issuer: Identity, tmp_path: Path) -> None:
    identity, addresses = identity_from_token(token(issuer))
    path = tmp_path / "reader.identity"
    write_identity(path, identity, addresses)
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_identity(path) == (identity, addresses)
    with pytest.raises(OperationFailed, match="file exists"):
        write_identity(path, identity)
    path.chmod(0o644)
    with pytest.raises(OperationFailed, match="chmod 600"):
        read_identity(path)
    path.chmod(0o600)
    path.write_text("{}")
    with pytest.raises(OperationFailed, match="is not an identity file"):
        read_identity(path)
    with pytest.raises(OperationFailed, match="cannot be read: no such file"):
        read_identity(tmp_path / "none")


def test_the_command_writes_the_identity(issuer: Identity, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "out.identity"
    assert run_cli(["token", "redeem", token(issuer), str(path)]) == 0
    assert read_identity(path)[1] == ("10.0.0.1:9464",)
    assert run_cli(["token", "redeem", token(issuer, "agent", ""), str(tmp_path / "other")]) == 1
    assert "Traceback" not in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_the_workers_copy_can_be_pickled_and_has_no_secret_in_its_repr(issuer: Identity) -> None:
    identity, addresses = identity_from_token(token(issuer))
    assert pickle.loads(pickle.dumps(identity)) == identity
    assert identity.seed.hex() not in repr(SinkLogClient(addresses, identity))
    assert repr(identity.seed) not in repr(identity)
    error = pickle.loads(pickle.dumps(SinkLogError("gone", "trimmed", 7)))
    assert (str(error), error.reason, error.first_kept) == ("gone", "trimmed", 7)
