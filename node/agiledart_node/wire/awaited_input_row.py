"""The silent input for which rows of an instance wait, as `status` reports it."""

from typing import Annotated, Any

import msgspec

_Names = Annotated[list[Annotated[str, msgspec.Meta(max_length=256)]], msgspec.Meta(max_length=64)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]


class AwaitedInputRow(msgspec.Struct, frozen=True, gc=False):
    """An input by position that holds back the rows of others.

    Attributes:
        sources: names of the sources that it comes from; held: names of those whose rows wait.
        since_ms: since when it has been silent, in ms since 1970; silent_ms: for how long.
        rows: number of rows that wait.
    """

    sources: _Names
    held: _Names
    since_ms: _Count
    silent_ms: _Count
    rows: _Count


def awaited_input_of(report: dict[str, Any]) -> AwaitedInputRow | None:
    """Return the awaited input in an executor's report; None when no row waits for one, or it is malformed."""
    try:
        return msgspec.convert(report["awaited_input"], AwaitedInputRow)
    except (KeyError, msgspec.ValidationError):
        return None
