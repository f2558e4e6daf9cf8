"""What rows without types may hold when they travel: what JSON and MessagePack give back as it was."""

from typing import Any, Final

_SAME: Final = frozenset({str, int, float, bool, bytes, type(None)})


def check_plain(value: Any) -> None:
    """Raise TypeError for a value that would come back as something else: a tuple as a list, a time as a text."""
    kind = type(value)
    if kind in _SAME:
        return
    if kind is dict:
        for name, one in value.items():
            if type(name) is not str:
                raise TypeError(f"a dict row has the name {name!r}; names are texts")
            check_plain(one)
    elif kind is list:
        for one in value:
            check_plain(one)
    else:
        raise TypeError(
            f"a dict row holds {value!r}, a {kind.__name__}, which would come back as something else: rows without types hold"
            " texts, numbers, truths, None, lists and dicts; others need a NamedTuple"
        )
