"""`PendingPlace`: place of a sink's unfinished files; a run's snapshots carry it to the node that finishes them."""

import os
from pathlib import Path
from typing import Final

import msgspec

from agiledart_connectors.files.rolled_files import PART
from agiledart_connectors.files.seals import Seal

_BEGINNING: Final = "files "


class PendingPlace(msgspec.Struct, frozen=True):
    """A sink's files.

    Attributes:
        kind: of the connector.
        path: of the only file, or of the numbered ones without their numbers; absolute.
        rolls: there may be several.
        run, step: whose they are.
        seal: of the file that the last epoch ends in.
    """

    kind: str
    path: str
    rolls: bool
    run: int
    step: str
    seal: Seal | None = None

    @property
    def text(self) -> str:
        """Return the place as a snapshot stores it."""
        return _BEGINNING + msgspec.json.encode(self).decode()

    @property
    def run_suffix(self) -> str:
        """Return the ending of unnumbered names, after the final name."""
        return run_suffix_of(self.run, self.step)

    def has_any(self) -> bool:
        """Return whether unfinished files exist there."""
        folder, name = os.path.split(self.path)
        stem = os.path.splitext(name)[0]
        try:
            names = os.listdir(folder)
        except OSError:
            return True  # opening it gives the better error
        return any(file.startswith(stem) and f".{self.run_suffix}." in file and file.endswith(PART) for file in names)


def parse_pending_place(text: str) -> PendingPlace | None:
    """Return the place that a sink's identity names; None: the identity is of another kind.

    Raises `msgspec.MsgspecError`, `ValueError`.
    """
    if not text.startswith(_BEGINNING):
        return None
    place = msgspec.json.decode(text[len(_BEGINNING) :], type=PendingPlace)
    if "\0" in place.path or not os.path.isabs(place.path) or not Path(place.path).name:
        raise ValueError("its path names no file")
    return place


def run_suffix_of(run: int, step: str) -> str:
    """Return the suffix that tells the files of a run's sink from those of others."""
    return f"{run & 0xFFFFFFFFFFFFFFFF:016x}" + (f".{step.replace('.', '+')}" if step else "")
