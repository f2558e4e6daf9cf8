"""Check of rows without types: they may only hold values that JSON and MessagePack return unchanged."""

from typing import Any, Final

_SAME: Final = frozenset({str, int, float, bool, bytes, type(None)})


def check_plain(value: Any) -> None:
    """Raise TypeError for a value that would come back as another one: a tuple as a list, a time as a text."""
    kind = type(value)
    if kind in _SAME:
        return
    if kind is dict:
        for name, member in value.items():
            if type(name) is not str:
                raise TypeError(f"a dict row has the name {name!r}; names are texts")
            check_plain(member)
    elif kind is list:
        for item in value:
            check_plain(item)
    else:
        raise TypeError(
            f"a dict row holds {value!r}, a {kind.__name__}, which would come back as something else: rows without types hold"
            " texts, numbers, bools, None, lists and dicts; for other values use a NamedTuple"
        )
