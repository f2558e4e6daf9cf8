"""Rotation of a key that others may know: for a stopped node, and for a user.

A node's position on the ring comes from its key, so with another key it is another node: a token admits it again, or
the authority's key where that is. The files in its state directory stay. Only data that was sealed to the old key
cannot be opened, and the files of runs are moved aside: they belong to the old node, for which such a run waits.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ed25519

from agiledart_agent.identity.identity import FIRST_AGENT_DAYS, Identity
from agiledart_agent.identity.identity_files import store_key
from agiledart_agent.identity.operator_identity import FILE as OPERATOR_FILE
from agiledart_agent.identity.operator_identity import operator_of, stored_operator
from agiledart_agent.identity.reader_identity import read_identity, write_identity
from agiledart_agent.identity.tokens import Token, redeem, user_key
from agiledart_agent.identity.user_identity import SUFFIX, identities_folder, last_link
from agiledart_agent.state_files.backed_up_file import is_stored
from agiledart_agent.state_files.durable_file import write_durably
from agiledart_agent.state_files.private_files import read_private
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.grants import sign_link
from agiledart_kernel.node_id import node_id_of_key
from agiledart_transport.agent_connection import ClientIdentity
from agiledart_transport.certificates import public_bytes


@dataclass(frozen=True, slots=True)
class RotatedKey:
    """Public keys before and after a rotation.

    Attributes:
        runs: applications with `delivery="exactly-once"` in which the old node had a part.
        aside: where the files of these runs are now.
        operator: the operator's key before; empty: there was none.
    """

    old: bytes
    new: bytes
    runs: tuple[str, ...] = ()
    aside: Path | None = None
    operator: bytes = b""


def rotate_node(state_dir: Path, token: Token | None) -> RotatedKey:
    """Give the stopped node of this directory another key.

    Raises:
        OperationFailed: it runs, the token is not of its network, or there is neither token nor authority's key.
    """
    if not is_stored(state_dir / "node.key"):
        raise OperationFailed(f'There is no node in {state_dir}. Start one with "agiledart agent".')
    identity = Identity.load_or_create(state_dir)
    try:
        old, key, now = identity.public_key, ed25519.Ed25519PrivateKey.generate(), int(time.time())
        if token is not None:
            _check(token, identity.network, ("agent",))
            chain, record = redeem(token, public_bytes(key), now), token.signed_record
        elif identity.authority is not None:
            chain = sign_link(
                identity.network, identity.authority.sign, (), key=public_bytes(key), use="act", role="agent",
                not_before=now, not_after=now + FIRST_AGENT_DAYS * 86_400,
            )  # fmt: skip
            record = b""
        else:
            raise OperationFailed(
                "A new key needs a token that admits it: --token @FILE, made where the network was started."
            )
        store_key(state_dir / "node.key", key)
        identity.key = key
        identity.join_network(identity.network, chain, record)
        identity.keep_network()
        runs, aside = _laid_aside(state_dir, old)
        operator = _replaced_operator(identity, token)
    except OSError as error:
        raise OperationFailed(f"{error.filename or state_dir} cannot be written: {error.strerror}.") from None
    finally:
        identity.close()
    return RotatedKey(old, public_bytes(key), runs, aside, operator)


def _replaced_operator(identity: Identity, token: Token | None) -> bytes:
    """Give the operator of a node another key, because others may know this one, too. Return the old key; empty: none."""
    known = stored_operator(identity)
    (identity.directory / OPERATOR_FILE).unlink(missing_ok=True)
    operator_of(identity, token)
    return last_link(known).key if known is not None else b""


def _laid_aside(state_dir: Path, old: bytes) -> tuple[tuple[str, ...], Path | None]:
    """Move the files of runs aside, so that the next start does not take them for damaged ones of its own. Raises OSError."""
    folder = state_dir / "runs"
    parts = sorted(folder.glob("*.*")) if folder.is_dir() else []
    if not parts:
        return (), None
    aside = state_dir / f"runs-of-{node_id_of_key(old).short}"
    folder.rename(aside)
    return tuple(dict.fromkeys(part.name.rpartition(".")[0] for part in parts)), aside


def rotate_user(name: str, token: Token, folder: Path | None = None) -> tuple[ClientIdentity, Path]:
    """Give an identity's name to another key. The old key is kept beside it, since it still owns its applications.

    Raises:
        OperationFailed: there is no such identity, or the token is of another network or role.
    """
    folder = folder or identities_folder()
    path, before = folder / f"{name}{SUFFIX}", folder / f"{name}.old{SUFFIX}"
    old, addresses = read_identity(path)
    _check(token, old.network, (last_link(old).role,))
    key = user_key(token)
    if key.private_bytes_raw() == old.seed:
        raise OperationFailed(f"{name} has its key from this token already; a token gives the same key each time.")
    new = ClientIdentity(
        token.network, key.private_bytes_raw(), redeem(token, public_bytes(key), int(time.time())), token.signed_record
    )
    if before.exists():
        raise OperationFailed(
            f"{before} exists, from an earlier change. Remove it when its key no longer owns anything."
        )
    path.rename(before)
    write_identity(path, new, token.addresses or addresses)
    return new, before


def renew_user(name: str, chain: tuple[bytes, ...], folder: Path | None = None) -> None:
    """Store a membership that the renewal service has signed. Raises OperationFailed."""
    path = (folder or identities_folder()) / f"{name}{SUFFIX}"
    identity, addresses = read_identity(path)
    temporary_path = path.with_name(f".{path.name}.new")
    temporary_path.unlink(missing_ok=True)
    write_identity(temporary_path, ClientIdentity(identity.network, identity.seed, chain, identity.token), addresses)
    temporary_path.replace(path)


def export_authority(state_dir: Path, file: Path, *, remove: bool) -> None:
    """Copy the network's authority key to a file that only we can read. With `remove`, leave none in the state directory.

    Raises:
        OperationFailed: the key does not exist, or the file does.
    """
    path = state_dir / "authority.key"
    try:
        content = read_private(path, secret=True)
    except FileNotFoundError:
        raise OperationFailed(
            f"{path} does not exist: this node did not create its network, or the key was already moved to safe storage."
        ) from None
    except OSError as error:
        raise OperationFailed(f"{path} cannot be read: {error.strerror}.") from None
    if file.exists() or file.is_symlink():
        raise OperationFailed(f"{file} already exists. Name another file.")
    try:
        write_durably(file, content)
        if read_private(file, secret=True) != content:
            raise OperationFailed(f"{file} differs from the written key; nothing was removed.")
        if remove:
            path.unlink()
    except OSError as error:
        raise OperationFailed(f"{error.filename or file} cannot be written: {error.strerror}.") from None


def _check(token: Token, network: bytes, roles: tuple[str, ...]) -> None:
    if token.network != network:
        raise OperationFailed(f"The token is of network {token.network.hex()[:8]}, the key of {network.hex()[:8]}.")
    if token.role not in roles:
        raise OperationFailed(f"The token makes {token.role}s; this takes one of the role {roles[0]}.")
