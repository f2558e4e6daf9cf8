"""Files of a node's identity: its key and its network with their copies, its incarnation, and the directory's lock."""

import contextlib
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final, Generic, NamedTuple, TypeVar

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from agiledart_agent.state_files.backed_up_file import BackedUpFile, read_file_and_copy, write_backed_up
from agiledart_agent.state_files.durable_file import write_durably
from agiledart_agent.state_files.private_files import read_private
from agiledart_kernel.errors import OperationFailed, Refused
from agiledart_kernel.grants import verify_chain
from agiledart_transport.certificates import check_signature, public_bytes

T = TypeVar("T")

_JOIN_AGAIN: Final = "Join its network again with a token:  rm {path}*   and   agiledart agent --join @FILE"


class DamagedKey(OperationFailed):
    """A file that should hold a key holds none."""


class StoredNetwork(msgspec.Struct, frozen=True):
    """Content of `network.json`; msgspec writes bytes as base64."""

    network: bytes
    chain: tuple[bytes, ...]
    is_untouched: bool = False
    token: bytes = b""
    receipt: bytes = b""


def lock_directory(directory: Path) -> IO[str]:
    """Take the directory's lock, held until the file is closed. The system releases it when the process ends in any way."""
    file = os.fdopen(os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "r+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = file.read(20).strip()
        file.close()
        owner = f"another agent (pid {pid})" if pid.isdigit() else "another agent"
        raise OperationFailed(
            f"{directory} is in use by {owner}. Give another --state-dir for a second agent, or stop the other."
        ) from None
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def store_key(path: Path, key: ed25519.Ed25519PrivateKey) -> None:
    """Replace a key so that a restart finds the old or the new one. Raises OSError."""
    write = write_backed_up if path.name == "node.key" else write_durably
    write(
        path,
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


class FilePart(NamedTuple, Generic[T]):
    """Content of a backed-up file or of its copy."""

    content: T
    file: BackedUpFile


def matching_parts(
    keys: Sequence[FilePart[ed25519.Ed25519PrivateKey]], networks: Sequence[FilePart[StoredNetwork]], now: float
) -> tuple[FilePart[ed25519.Ed25519PrivateKey], FilePart[StoredNetwork] | None]:
    """Return the key and the network of one node: of a file and its copy one may be another node's."""
    for key in keys:
        for network in networks:
            try:
                verify_chain(
                    network.content.network, network.content.chain, public_bytes(key.content), int(now), check_signature
                )
            except Refused as error:
                if error.reason not in ("expired", "not yet valid"):
                    continue
            return key, network
    return keys[0], networks[0] if networks else None


def networks_in(path: Path) -> list[FilePart[StoredNetwork]]:
    """Return the networks in a file and its copy, at least one. Raises OperationFailed."""
    networks, reason = [], ""
    try:
        for stored in read_file_and_copy(path):
            try:
                networks.append(FilePart(msgspec.json.decode(stored.content, type=StoredNetwork), stored))
            except msgspec.MsgspecError as error:
                reason = reason or str(error)
    except OSError as error:
        reason = str(error)
    if not networks:
        raise OperationFailed(f"{path} is damaged ({reason}). {_JOIN_AGAIN.format(path=path)}")
    return networks


def keys_in(path: Path) -> list[FilePart[ed25519.Ed25519PrivateKey]]:
    """Return the keys in a file and its copy, at least one. Raises `DamagedKey`, OperationFailed."""
    try:
        stored_files = read_file_and_copy(path, secret=True)
    except OSError as error:
        raise OperationFailed(f"{path} cannot be read: {error.strerror}.") from None
    keys = []
    for stored in stored_files:
        with contextlib.suppress(ValueError, TypeError, UnsupportedAlgorithm):
            key = serialization.load_pem_private_key(stored.content, None)
            if isinstance(key, ed25519.Ed25519PrivateKey):
                keys.append(FilePart(key, stored))
    if not keys:
        raise DamagedKey(
            f"{path} is damaged: it holds no Ed25519 key, nor does its copy. Put back a copy of yours, or start as a new node:  "
            f"rm {path} {path.with_name('network.json')}*   and join with a token:  agiledart agent --join @FILE"
        )
    return keys


def read_key(path: Path) -> ed25519.Ed25519PrivateKey:
    """Return a key. Raises `DamagedKey`, OperationFailed."""
    return keys_in(path)[0].content


def read_incarnation(path: Path, floor: int) -> int:
    """Return the number in a file; `floor` when it has none."""
    try:
        text = read_private(path).decode("ascii").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        return floor
    return int(text) if text.isdigit() and len(text) < 18 else floor
