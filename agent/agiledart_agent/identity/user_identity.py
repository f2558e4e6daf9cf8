"""Identity of a user at the command line: a token, redeemed once for a key of the user's own, which is stored from then on.

A token admits for a day, and membership lasts for a year. So the first command that uses a token stores the key and its
chain in a file (0600). Later commands use that, whether or not the token still admits. The key is the same wherever the
token is used (`user_key`), so one person with one token is one owner. `agiledart identity add NAME TOKEN` gives the
file a name.
"""

import contextlib
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from agiledart_agent.identity.reader_identity import read_identity, write_identity
from agiledart_agent.identity.tokens import PREFIX, Token, parse_token, read_token, redeem, user_key
from agiledart_kernel.errors import ConfigurationError, OperationFailed
from agiledart_kernel.grants import ChainLink, decode_link
from agiledart_transport.agent_connection import ClientIdentity
from agiledart_transport.certificates import public_bytes

SUFFIX: Final = ".identity"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def identities_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of a user's identities, closed to users' code of an agent of the same user."""
    base = environment.get("XDG_CONFIG_HOME") or os.path.join(environment.get("HOME", "/"), ".config")
    return Path(base) / "agiledart" / "identities"


def known_identities(folder: Path | None = None) -> list[str]:
    """Return the names of the stored identities, sorted."""
    folder = folder or identities_folder()
    return sorted(path.name.removesuffix(SUFFIX) for path in folder.glob(f"*{SUFFIX}")) if folder.is_dir() else []


def identity_of(argument: str, now_seconds: int | None = None, folder: Path | None = None) -> ClientIdentity:
    """Return the user that `--identity` names: a token's text, `@FILE` with a token or an identity, `-`, or a name.

    Raises:
        OperationFailed: the token or the file is invalid, too old, or for agents.
        ConfigurationError: no identity has this name.
    """
    folder = folder or identities_folder()
    now = int(time.time()) if now_seconds is None else now_seconds
    if argument.lower().startswith(PREFIX) or argument == "-":
        return _of_token(parse_token(read_token(argument)), now, folder)
    if argument.startswith("@"):
        text = read_token(argument)
        if text.startswith("{"):
            return read_identity(Path(argument[1:]).expanduser())[0]
        return _of_token(parse_token(text), now, folder)
    path = folder / f"{argument}{SUFFIX}"
    if not _NAME.fullmatch(argument) or not path.exists():
        known = f" Known: {', '.join(known_identities(folder))}." if known_identities(folder) else ""
        raise ConfigurationError(
            f"There is no identity {argument!r}.{known} Give --identity @FILE with a token, or give one a name:  "
            f"agiledart identity add NAME @FILE"
        )
    return read_identity(path)[0]


def keep_identity(name: str, argument: str, now_seconds: int | None = None, folder: Path | None = None) -> Path:
    """Give the holder of a token a name. Return the path of its file. Raises OperationFailed, ConfigurationError."""
    folder = folder or identities_folder()
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"{name!r} is an invalid name: use up to 64 letters, digits, dots, dashes and underscores."
        )
    identity = identity_of(argument, now_seconds, folder)
    path = folder / f"{name}{SUFFIX}"
    if path.exists():
        raise OperationFailed(f"An identity {name} already exists. Give another name, or remove {path}.")
    _make(folder)
    write_identity(path, identity, _addresses_of(argument))
    return path


def kept_addresses(name: str, folder: Path | None = None) -> tuple[str, ...]:
    """Return the agents that the token of a stored identity named."""
    return read_identity((folder or identities_folder()) / f"{name}{SUFFIX}")[1]


def last_link(identity: ClientIdentity) -> ChainLink:
    """Return the identity's own link: role, scope, validity."""
    return decode_link(identity.chain[-1])


def _of_token(token: Token, now: int, folder: Path) -> ClientIdentity:
    """Return the member that this token became at its first use; a new one when there is none, or its membership has ended."""
    if token.role in ("agent", "executor"):
        raise OperationFailed(
            f"This token is for a new {token.role}. Commands need one of the role submitter, reader or admin:  "
            f"agiledart token create --role submitter"
        )
    path = folder / f"{token.record.token.hex()[:16]}{SUFFIX}"
    key = user_key(token)
    with contextlib.suppress(OperationFailed):
        known, _ = read_identity(path)
        if known.seed == key.private_bytes_raw() and last_link(known).not_after >= now:
            return known
    identity = ClientIdentity(
        token.network, key.private_bytes_raw(), redeem(token, public_bytes(key), now), token.signed_record
    )
    with contextlib.suppress(OperationFailed, OSError):  # without a writable home each command redeems the token
        _make(folder)
        path.unlink(missing_ok=True)
        write_identity(path, identity, token.addresses)
    return identity


def _addresses_of(argument: str) -> tuple[str, ...]:
    """Return the agents that a token, or a file with one, names."""
    with contextlib.suppress(OperationFailed):
        return parse_token(read_token(argument)).addresses
    return ()


def _make(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
