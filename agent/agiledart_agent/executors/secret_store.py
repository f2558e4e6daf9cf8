"""Secrets of connectors that users have provisioned on this node, stored sealed and opened when an executor starts.

`secrets/` of the state directory has a file for each, named by the hash of owner, application and name, for this user
alone. Only the node's key opens it, so a copy of the folder reveals nothing.
"""

from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec
from cryptography.hazmat.primitives.asymmetric import ed25519

from agiledart_agent.state_files.durable_file import durable_files, write_durably
from agiledart_agent.state_files.private_files import read_private
from agiledart_connectors.credentials import ProvisionedSecrets
from agiledart_kernel.errors import OperationFailed, Refused, RemoteProtocolError
from agiledart_kernel.signed_commands import signer_of
from agiledart_node.wire.secret_messages import SecretInfo
from agiledart_transport.sealing import seal, unseal

FOLDER: Final = "secrets"

MAX_KEPT: Final = 1_024
MAX_OF_AN_OWNER: Final = 128


class _SecretFile(msgspec.Struct, frozen=True, array_like=True):
    known: SecretInfo
    sealed: bytes


def context_of(application: str, name: str) -> bytes:
    """Return the context to which a sealed secret is bound, beside the node's key."""
    return f"{application}\0{name}".encode()


def sealed_for(public_key: bytes, application: str, name: str, text: str) -> bytes:
    """Return a secret sealed for one node. Raises `Refused`."""
    return seal(public_key, context_of(application, name), text.encode())


class SecretStore:
    """Store of this node's secrets."""

    def __init__(self, state_dir: Path, key: ed25519.Ed25519PrivateKey) -> None:
        self._folder, self._key = state_dir / FOLDER, key

    def keep(self, known: SecretInfo, sealed: bytes) -> None:
        """Replace a secret, or (when nothing is sealed) remove it.

        Raises:
            OperationFailed: it cannot be opened here, is older than the stored one, or there are too many. OSError: the
                disk.
        """
        path = self._path(known)
        before = self._read(path)
        if before == _SecretFile(known, sealed):  # the same message once more
            return
        if before is not None and before.known.set_ms >= known.set_ms:
            raise OperationFailed(f"a later command about {known.name} was carried out before this one")
        if not sealed:
            if before is None:
                raise OperationFailed(f"there is no secret {known.name} of yours for {known.application} here")
            path.unlink()
            return
        self._open(known, sealed)
        stored = self.known()
        if before is None and (
            len(stored) >= MAX_KEPT or sum(info.owner == known.owner for info in stored) >= MAX_OF_AN_OWNER
        ):
            raise OperationFailed(
                f"this node keeps {MAX_KEPT:,} secrets at most, and {MAX_OF_AN_OWNER} of one key: remove one first"
            )
        self._folder.mkdir(mode=0o700, exist_ok=True)
        write_durably(path, msgspec.msgpack.encode(_SecretFile(known, sealed)))

    def known(self) -> tuple[SecretInfo, ...]:
        """Return all stored secrets, without their texts."""
        return tuple(stored.known for stored in self._files())

    def of(self, application: str, owner: bytes) -> dict[str, str]:
        """Return name → text, for an executor of a run that this key has submitted."""
        texts = {}
        for stored in self._files():
            if (stored.known.application, stored.known.owner) == (application, owner):
                try:
                    texts[stored.known.name] = self._open(stored.known, stored.sealed)
                except OperationFailed:  # damaged: the connector reports that there is none
                    continue
        return texts

    def provisioned(self, application: str, signed_command: bytes) -> ProvisionedSecrets:
        """Return the secrets that the signer of this command has provisioned for the application.

        The node has verified the command.
        """
        try:
            return ProvisionedSecrets(self.of(application, signer_of(signed_command)[1]))
        except RemoteProtocolError:
            return ProvisionedSecrets()

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
            paths = durable_files(self._folder)
        except OSError:
            return []
        return [stored for path in paths if (stored := self._read(path)) is not None]

    def _read(self, path: Path) -> _SecretFile | None:
        try:
            return msgspec.msgpack.decode(read_private(path, secret=True), type=_SecretFile)
        except (OSError, OperationFailed, msgspec.MsgspecError):
            return None
