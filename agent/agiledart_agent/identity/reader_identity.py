"""Identity of a reader of sink logs: from a token, or from a file into which a token was redeemed.

A token makes one member of all readers that use it, while it admits new members (a day by default). A job that is
restarted over weeks redeems it once into an identity file (mode 0600) and uses that.
"""

import contextlib
import os
import time
from pathlib import Path

import msgspec

from agiledart_agent.identity.tokens import parse_token, read_token, redeem, user_key
from agiledart_kernel.errors import OperationFailed
from agiledart_transport.agent_connection import ClientIdentity
from agiledart_transport.certificates import public_bytes


class _ReaderIdentityFile(msgspec.Struct, frozen=True):
    version: int
    network: str
    seed: str
    chain: tuple[str, ...]
    addresses: tuple[str, ...] = ()
    token: str = ""


def identity_from_token(argument: str, now_seconds: int | None = None) -> tuple[ClientIdentity, tuple[str, ...]]:
    """Return the member that a token makes of its readers, and the agents that the token names.

    The member is the same at every time and place: one use, however often the token is read. `argument` is a token's
    text or `@FILE`.

    Raises:
        OperationFailed: the text is not a token, is too old, or is for agents.
    """
    token = parse_token(read_token(argument))
    if token.role in ("agent", "executor"):
        raise OperationFailed(
            f"This token is for a new {token.role}. Reading a log needs one of the role reader:  "
            f"agiledart token create --role reader --scope sink:NAME"
        )
    key = user_key(token)
    chain = redeem(token, public_bytes(key), int(time.time()) if now_seconds is None else now_seconds)
    return ClientIdentity(token.network, key.private_bytes_raw(), chain, token.signed_record), token.addresses


def write_identity(path: Path, identity: ClientIdentity, addresses: tuple[str, ...] = ()) -> None:
    """Store a member in a file that only its owner may read, never over another file. Raises OperationFailed."""
    body = _ReaderIdentityFile(
        1,
        identity.network.hex(),
        identity.seed.hex(),
        tuple(link.hex() for link in identity.chain),
        addresses,
        identity.token.hex(),
    )
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(body)) + b"\n")
    except OSError as error:
        raise OperationFailed(f"{path} cannot be written: {(error.strerror or str(error)).lower()}") from None


def read_identity(path: Path) -> tuple[ClientIdentity, tuple[str, ...]]:
    """Return the member in a file, and the agents that its token named. Raises OperationFailed."""
    try:
        body = msgspec.json.decode(path.read_bytes(), type=_ReaderIdentityFile)
        identity = ClientIdentity(
            bytes.fromhex(body.network),
            bytes.fromhex(body.seed),
            tuple(bytes.fromhex(link) for link in body.chain),
            bytes.fromhex(body.token),
        )
    except OSError as error:
        raise OperationFailed(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except (msgspec.MsgspecError, ValueError):
        raise OperationFailed(f"{path} is not an identity file.") from None
    with contextlib.suppress(OSError):
        if path.stat().st_mode & 0o077:
            raise OperationFailed(f"{path} can be read by other users; make it yours alone:  chmod 600 {path}")
    return identity, body.addresses
