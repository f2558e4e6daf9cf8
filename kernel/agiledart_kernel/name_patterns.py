"""Names that stand in file names, each with its pattern, which is verified when a message is decoded.

A peer chooses the names in its messages. Without the pattern, `/etc/x` or `../x` would name a folder outside the state directory.
"""

import re
from typing import Annotated, Final

import msgspec

from agiledart_kernel.limits import MAX_APPLICATION_NAME
from agiledart_kernel.permissions import FEED_PREFIX

_ONE: Final = r"[A-Za-z0-9][A-Za-z0-9._-]*"
APPLICATION_NAME: Final = re.compile(_ONE)

ApplicationName = Annotated[str, msgspec.Meta(pattern=rf"\A{_ONE}\Z", max_length=MAX_APPLICATION_NAME)]
"""Name of an application or a stage in a message."""

OptionalApplicationName = Annotated[str, msgspec.Meta(pattern=rf"\A(?:{_ONE})?\Z", max_length=MAX_APPLICATION_NAME)]
"""Name of an application; empty: of none."""

LogWriterName = Annotated[str, msgspec.Meta(pattern=rf"\A(?:(?:{FEED_PREFIX})?{_ONE})?\Z", max_length=80)]
"""Name of the application, or the feed, that writes a log; empty in records of old releases."""

CheckpointName = Annotated[str, msgspec.Meta(pattern=r"\A(?:[A-Za-z0-9_][A-Za-z0-9._-]*)?\Z", max_length=64)]
"""Name under which a checkpoint is retained; empty: an export."""


def is_application_name(name: str) -> bool:
    """Return whether an application can have this name."""
    return len(name) <= MAX_APPLICATION_NAME and APPLICATION_NAME.fullmatch(name) is not None
