"""Secrets of connectors that users have entrusted to this node, sealed as they came; opened when an executor starts.

`secrets/` of the state directory has a file for each, named by the hash of owner, application and name, for this user alone.
What is in it opens with the node's key only, so a copy of the folder tells nothing.
"""

from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec
from cryptography.hazmat.primitives.asymmetric import ed25519

from agiledart_agent.state_files.durable_file import write_durably
from agiledart_agent.state_files.private_files import read_private
from agiledart_kernel.errors import OperationFailed, Refused
from agiledart_node.wire.secret_messages import SecretInfo
from agiledart_transport.sealing import seal, unseal

FOLDER: Final = "secrets"

MAX_KEPT: Final = 1_024
MAX_OF_AN_OWNER: Final = 128


class _SecretFile(msgspec.Struct, frozen=True, array_like=True):
    known: SecretInfo
    sealed: bytes


def context_of(application: str, name: str) -> bytes:
    """What a sealed secret is bound to, beside the node's key."""
    return f"{application}\0{name}".encode()


def sealed_for(public_key: bytes, application: str, name: str, text: str) -> bytes:
    """A secret for one node; raises `Refused`."""
    return seal(public_key, context_of(application, name), text.encode())


class SecretStore:
    """What this node keeps."""

    def __init__(self, state_dir: Path, key: ed25519.Ed25519PrivateKey) -> None:
        self._folder, self._key = state_dir / FOLDER, key

    def keep(self, known: SecretInfo, sealed: bytes) -> None:
        """Put one in place of what was there, or (nothing is sealed) let it go.

        Raises:
            OperationFailed: it cannot be opened here, is older than what is kept, or there are too many. OSError: the disk.
        """
        path = self._path(known)
        before = self._read(path)
        if before == _SecretFile(known, sealed):  # the same message once more
            return
        if before is not None and before.known.set_ms >= known.set_ms:
            raise OperationFailed(f"a later order about {known.name} was carried out before this one")
        if not sealed:
            if before is None:
                raise OperationFailed(f"there is no secret {known.name} of yours for {known.application} here")
            path.unlink()
            return
        self._open(known, sealed)
        kept = self.known()
        if before is None and (
            len(kept) >= MAX_KEPT or sum(one.owner == known.owner for one in kept) >= MAX_OF_AN_OWNER
        ):
            raise OperationFailed(
                f"this node keeps {MAX_KEPT:,} secrets at most, and {MAX_OF_AN_OWNER} of one key: remove one first"
            )
        self._folder.mkdir(mode=0o700, exist_ok=True)
        write_durably(path, msgspec.msgpack.encode(_SecretFile(known, sealed)))

    def known(self) -> tuple[SecretInfo, ...]:
        """All that are kept, without their texts."""
        return tuple(one.known for one in self._files())

    def of(self, application: str, owner: bytes) -> dict[str, str]:
        """Name → text, for an executor of a run that this key has submitted."""
        found = {}
        for one in self._files():
            if (one.known.application, one.known.owner) == (application, owner):
                try:
                    found[one.known.name] = self._open(one.known, one.sealed)
                except OperationFailed:  # damaged: the connector says that there is none
                    continue
        return found

    def _open(self, known: SecretInfo, sealed: bytes) -> str:
        try:
            return unseal(self._key, context_of(known.application, known.name), sealed).decode()
        except (Refused, UnicodeDecodeError):
            raise OperationFailed(
                f"{known.name} cannot be opened here: it was sealed for another node, application or name"
            ) from None

    def _path(self, known: SecretInfo) -> Path:
        named = msgspec.msgpack.encode((known.owner, known.application, known.name))
        return self._folder / sha256(named).hexdigest()[:40]

    def _files(self) -> list[_SecretFile]:
        try:
            paths = sorted(path for path in self._folder.iterdir() if not path.name.startswith("."))
        except OSError:
            return []
        return [found for path in paths if (found := self._read(path)) is not None]

    def _read(self, path: Path) -> _SecretFile | None:
        try:
            return msgspec.msgpack.decode(read_private(path, secret=True), type=_SecretFile)
        except (OSError, OperationFailed, msgspec.MsgspecError):
            return None
