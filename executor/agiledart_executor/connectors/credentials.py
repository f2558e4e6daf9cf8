"""Secrets of a node by name: `?credentials=NAME`. They never stand in a URL, a record, a log or a process list.

A file NAME holds `user:password` in one line. It is looked for among the service's credentials (systemd's `LoadCredential=`), then
below `AGILEDART_CREDENTIALS`, `/etc/agiledart/credentials` and `~/.config/agiledart/credentials`; nobody but its owner may read it.
"""

import os
import stat
from pathlib import Path
from typing import NamedTuple

from agiledart_kernel.errors import ConfigurationError, OperationFailed

MAX_BYTES = 4_096


class Credentials(NamedTuple):
    """Who, and the proof."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Credentials({self.user!r}, …)"


def folders() -> list[Path]:
    """Where credentials are looked for, in this order."""
    given = [os.environ.get("CREDENTIALS_DIRECTORY"), os.environ.get("AGILEDART_CREDENTIALS")]
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return [
        *(Path(folder) for folder in given if folder),
        Path("/etc/agiledart/credentials"),
        Path(home).expanduser() / "agiledart" / "credentials",
    ]


def secret(name: str) -> str:
    """The text of a credential, without the end of its line.

    Raises:
        ConfigurationError: the name is none.
        OperationFailed: there is none of that name, or others may read it.
    """
    if not name or "/" in name or name.startswith("."):
        raise ConfigurationError(f"{name!r} is no name of a credential: it is the name of a file, without its folder")
    for folder in folders():
        path = folder / name
        try:
            with path.open("rb") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                if mode & 0o077:
                    raise OperationFailed(
                        f"the credential {path} may be read by others (mode {mode:03o}): chmod 600 {path}"
                    )
                return file.read(MAX_BYTES).decode("utf-8", "replace").rstrip("\r\n")
        except FileNotFoundError:
            continue
        except OSError as error:
            raise OperationFailed(f"the credential {path} cannot be read: {error.strerror or error}") from None
    places = ", ".join(str(folder) for folder in folders())
    raise OperationFailed(
        f"there is no credential {name!r} on this node: write user:password into a file {name} (mode 600) in one of {places}"
    )


def credentials(name: str) -> Credentials | None:
    """The user and password of a credential; None for no name."""
    if not name:
        return None
    user, colon, password = secret(name).partition(":")
    if not colon:
        raise OperationFailed(f"the credential {name!r} is no user:password")
    return Credentials(user, password)
