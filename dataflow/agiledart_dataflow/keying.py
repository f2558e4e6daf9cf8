"""`Keying`: how rows find the instance that owns their key."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Keying:
    """How rows reach a keyed step: row → key, and the key's type."""

    function: Callable[[Any], Any]
    key_type: Any
