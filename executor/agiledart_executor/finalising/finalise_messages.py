"""Request to the process that finalises files, and its answer."""

import msgspec

from agiledart_connectors.files.pending_place import PendingPlace


class FilesToFinalise(msgspec.Struct, frozen=True, array_like=True):
    """Files of a sink, and the end of its last committed epoch in them."""

    place: PendingPlace
    ends: tuple[int, ...]


class FinaliseRequest(msgspec.Struct, frozen=True, array_like=True):
    """Request to finalise the files of an application's sinks.

    Args:
        application: name; its own folder is open to the process.
        files: of each sink.
        closed: as in `Configure`.
    """

    application: str
    files: tuple[FilesToFinalise, ...]
    closed: tuple[str, ...] = ()


class FinaliseResult(msgspec.Struct, frozen=True, array_like=True):
    """Result of a finalisation.

    Args:
        unrepairable: errors of files that no retry repairs.
        again: why a retry is needed; empty when none is.
    """

    unrepairable: tuple[str, ...] = ()
    again: str = ""
