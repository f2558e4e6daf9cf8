"""A node keeps sealed secrets, gives them to their owner's runs, and shows none."""

import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from agiledart_agent.executors import secret_store
from agiledart_agent.executors.secret_store import SecretStore, sealed_for
from agiledart_connectors import credentials
from agiledart_connectors.credentials import ProvisionedSecrets
from agiledart_kernel.errors import OperationFailed
from agiledart_node.wire.secret_messages import SecretInfo
from agiledart_transport.certificates import public_bytes

KEY = ed25519.Ed25519PrivateKey.from_private_bytes(b"k" * 32)
ME, OTHER = b"m" * 32, b"o" * 32
TEXT = "plant:s3cret/Wörd"


def known(at: int = 1, name: str = "db", owner: bytes = ME, application: str = "taxi") -> SecretInfo:
    return SecretInfo(name, application, owner, at)


def sealed(text: str = TEXT, name: str = "db", application: str = "taxi") -> bytes:
    return sealed_for(public_bytes(KEY), application, name, text)


@pytest.fixture
def store(tmp_path: Path) -> SecretStore:
    return SecretStore(tmp_path, KEY)


def test_only_runs_of_a_secrets_owner_get_it_and_the_disk_holds_it_sealed(store: SecretStore, tmp_path: Path) -> None:
    store.keep(known(), sealed())
    again = SecretStore(tmp_path, KEY)
    assert again.of("taxi", ME) == {"db": TEXT}
    assert again.of("taxi", OTHER) == again.of("mill", ME) == {}
    assert again.known() == (known(),)
    for path in (tmp_path / "secrets").iterdir():
        assert path.stat().st_mode & 0o777 == 0o600
        assert b"s3cret" not in path.read_bytes()
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700


def test_the_later_command_counts_and_repeated_messages_are_harmless(store: SecretStore) -> None:
    later = sealed("later")
    for _ in range(2):
        store.keep(known(5), later)
    with pytest.raises(OperationFailed, match="later command"):
        store.keep(known(4), sealed())
    assert store.of("taxi", ME) == {"db": "later"}
    store.keep(known(6), b"")
    assert store.known() == ()
    with pytest.raises(OperationFailed, match="no secret db of yours for taxi"):
        store.keep(known(7), b"")


def test_a_secret_sealed_for_another_purpose_is_refused(store: SecretStore) -> None:
    for wrong in (
        sealed(name="x"),
        sealed(application="mill"),
        sealed_for(public_bytes(ed25519.Ed25519PrivateKey.generate()), "taxi", "db", "x"),
        b"rubbish" * 9,
    ):
        with pytest.raises(OperationFailed, match="cannot be opened here"):
            store.keep(known(), wrong)
    assert store.known() == ()


def test_the_store_is_bounded(store: SecretStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secret_store, "MAX_OF_AN_OWNER", 2)
    for name in ("a", "b"):
        store.keep(known(name=name), sealed(name=name))
    with pytest.raises(OperationFailed, match="remove one first"):
        store.keep(known(name="c"), sealed(name="c"))
    store.keep(known(name="c", owner=OTHER), sealed(name="c"))
    store.keep(known(2, name="a"), sealed(name="a"))  # in place of another


def test_damaged_and_foreign_files_are_no_secrets(store: SecretStore, tmp_path: Path) -> None:
    store.keep(known(), sealed())
    (path,) = (tmp_path / "secrets").iterdir()
    os.chmod(path, 0o644)
    assert store.of("taxi", ME) == {}
    os.chmod(path, 0o600)
    path.write_bytes(b"\x00" * 40)
    assert store.of("taxi", ME) == {}


def test_connectors_find_a_secret_before_files_and_no_text_contains_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGILEDART_CREDENTIALS", str(tmp_path))
    (tmp_path / "db").write_text("file:text")
    (tmp_path / "db").chmod(0o600)
    given = ProvisionedSecrets({"db": TEXT, "pin": "12"})
    monkeypatch.setattr(credentials, "_provisioned_secrets", given)
    found = credentials.credentials("db")
    assert found is not None
    assert (found.user, found.password) == ("plant", "s3cret/Wörd")
    assert TEXT not in f"{given!r} {found!r}"
    assert "s3cret" not in repr(given)
    assert given.hide(f"refused {TEXT}, s3cret/Wörd, s3cret%2FW%C3%B6rd; 12 rows") == (
        "refused <secret db>, <secret db>, <secret db>; 12 rows"
    )
