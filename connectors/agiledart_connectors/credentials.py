"""Secrets of a node by name: `?credentials=NAME`. They never appear in a URL, a record, a log or a process list.

A file NAME holds `user:password` in one line. The node looks for it among the service's credentials (systemd's `LoadCredential=`),
then below `AGILEDART_CREDENTIALS`, `/etc/agiledart/credentials` and `~/.config/agiledart/credentials`.
Only its owner may be able to read it.
Secrets that users have provisioned for this application (`agiledart secret set`) come from the agent and take precedence.
"""

import os
import stat
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from agiledart_kernel.errors import ConfigurationError, OperationFailed

MAX_BYTES = 4_096

MIN_HIDDEN_LENGTH = 6
"""Characters of a secret that is left out of texts; a shorter one may be a word of any sentence."""


class UserPassword(NamedTuple):
    """User name and password."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"Credentials({self.user!r}, …)"


class ProvisionedSecrets(msgspec.Struct, frozen=True):
    """Name → text of the secrets that the agent gives to an executor; shows none of them."""

    texts: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"Entrusted({', '.join(self.texts)})"

    def hide(self, text: str) -> str:
        """A text for people with every secret in it, or the password of one, left out: drivers quote what they were given."""
        for name, hidden in self.texts.items():
            for part in (hidden, hidden.partition(":")[2]):
                if len(part) >= MIN_HIDDEN_LENGTH:
                    text = text.replace(part, f"<secret {name}>").replace(quote(part, safe=""), f"<secret {name}>")
        return text


_provisioned_secrets = ProvisionedSecrets()


def provision_secrets(given: ProvisionedSecrets) -> None:
    """Make these secrets known in this process."""
    global _provisioned_secrets
    _provisioned_secrets = given


def folders() -> list[Path]:
    """Return the folders to search for credentials, in order."""
    given = [os.environ.get("CREDENTIALS_DIRECTORY"), os.environ.get("AGILEDART_CREDENTIALS")]
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return [
        *(Path(folder) for folder in given if folder),
        Path("/etc/agiledart/credentials"),
        Path(home).expanduser() / "agiledart" / "credentials",
    ]


def secret(name: str, holds: str = "user:password") -> str:
    """Return the text of a credential, without the end of its line.

    Args:
        holds: form of the credential, for the error when it is missing.

    Raises:
        ConfigurationError: the name is invalid.
        OperationFailed: no credential has that name, or other users may read it.
    """
    if not name or "/" in name or name.startswith("."):
        raise ConfigurationError(f"{name!r} is no name of a credential: it is the name of a file, without its folder")
    if (text := _provisioned_secrets.texts.get(name)) is not None:
        return text
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
        f"there is no credential {name!r} on this node. Give it one:  agiledart secret set {name} --to NODE --for APP   "
        f"or write {holds} into a file {name} (mode 600) in one of {places}"
    )


def credentials(name: str) -> UserPassword | None:
    """The user and password of a credential; None for no name."""
    if not name:
        return None
    user, colon, password = secret(name).partition(":")
    if not colon:
        raise OperationFailed(f"the credential {name!r} is no user:password")
    return UserPassword(user, password)
