"""Allowed paths for the rows of an edge between two nodes: users' option `paths`."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

AUTO: Final = "auto"
WARM: Final = "warm"
DIRECT: Final = "direct"
MODES: Final = (AUTO, WARM, DIRECT)
"""`auto`: direct while that works, through relays while it does not. `warm`: two other paths are kept open and measured, so that
rows leave a bad link at once. `direct`: never through relays. Instead of a mode: names of the nodes that must relay."""

MAX_RELAYS_NAMED: Final = 3

Paths = tuple[str, ...]
"""Wire form: one mode, or names of nodes."""


def paths_from(value: str | Sequence[str]) -> Paths:
    """Return the paths for a user's option; raises ValueError, whose text ends a sentence about it."""
    if isinstance(value, str):
        if value in MODES:
            return (value,)
        near = get_close_matches(value, MODES, 1)
        hint = f'; did you mean "{near[0]}"?' if near else ""
        raise ValueError(f'paths = "{value}": use {_listed(MODES)}, or a list of nodes, as ["{value or "pi2"}"]{hint}')
    names = tuple(value)
    if not 1 <= len(names) <= MAX_RELAYS_NAMED:
        raise ValueError(f"paths names {len(names)} nodes; name 1 to {MAX_RELAYS_NAMED}")
    for name in names:
        if not isinstance(name, str) or not name:
            raise ValueError(f"paths = {list(names)!r}: write each node's name as a text")
        if name in MODES:
            raise ValueError(f'paths = {list(names)!r}: "{name}" is a mode, written without brackets: paths="{name}"')
    if len(dict.fromkeys(names)) != len(names):
        raise ValueError(f"paths = {list(names)!r}: name each node once")
    return names


def written(paths: Paths) -> str:
    """Return the text of a step's option; names have no comma."""
    return ",".join(paths)


def read(text: str) -> Paths:
    """Return the paths that `written` encoded; an empty text gives `auto`. Raises ValueError."""
    if not text:
        return (AUTO,)
    return paths_from(text if text in MODES else text.split(","))


def named(paths: Paths) -> Paths:
    """Return the nodes that must relay; none if it is a mode."""
    return () if not paths or paths[0] in MODES else paths


def describe_paths(paths: Paths) -> str:
    """Return the paths as a text for people."""
    return f"by {' or '.join(names)}" if (names := named(paths)) else paths[0] if paths else AUTO


def _listed(words: Sequence[str]) -> str:
    return ", ".join(f'"{word}"' for word in words)
