"""What the agent gives to the process that finishes files, and what it hears."""

import msgspec

from agiledart_connectors.files.pending_place import PendingPlace


class FilesToFinalise(msgspec.Struct, frozen=True, array_like=True):
    """A sink's files, and the end of its last committed epoch in them."""

    place: PendingPlace
    ends: tuple[int, ...]


class FinaliseRequest(msgspec.Struct, frozen=True, array_like=True):
    """What to finish.

    Args:
        application: whose it is: its own folder is open to the process.
        closed: as of `Configure`.
    """

    application: str
    files: tuple[FilesToFinalise, ...]
    closed: tuple[str, ...] = ()


class FinaliseResult(msgspec.Struct, frozen=True, array_like=True):
    """What has come of it.

    Args:
        wrong: of files that nothing mends.
        again: why it has to be tried again; empty: it need not.
    """

    unrepairable: tuple[str, ...] = ()
    again: str = ""
