"""Hints for verbs that a kind of stream lacks: the error names the verb that must come first."""

from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from agiledart_dataflow.user_code.callsite import call_site
from agiledart_kernel.errors import TopologyError

_ROW_VERBS = ("map", "filter", "flat_map", "key_by", "union", "sink")
_WINDOWED = "use .key_by(function).window(tumbling(size)).{verb}(…)"
_RESULT_FIRST = 'a window has no rows until you write .count("name") or .aggregate("name", …); then .{verb}(…)'

_RANKING = 'use .window(sliding(size)).count("name").top(…)'

_HINTS: dict[str, dict[str, str]] = {
    "Stream": {
        "count": _WINDOWED,
        "aggregate": _WINDOWED,
        "window": "it divides the rows of each key: .key_by(function).window(…)",
        **dict.fromkeys(
            ("stateful", "reduce", "running", "running_count", "pattern", "connect"),
            "it keeps state for each key: .key_by(function).{verb}(…)",
        ),
        **dict.fromkeys(
            ("window_join", "interval_join", "lookup"),
            "both sides need a key: .key_by(function).{verb}(name, other, …)",
        ),
    },
    "KeyedStream": {
        **dict.fromkeys(
            _ROW_VERBS, "write .{verb}(…) before .key_by(…); after .key_by(…) comes .window(…) or .stateful(…)"
        ),
        "count": 'use .key_by(…).window(tumbling(size)).count("name"), or .running_count("name")',
        "aggregate": 'use .key_by(…).window(tumbling(size)).aggregate("name", …), or .running("name", …)',
        "top": _RANKING,
    },
    "window": {
        **dict.fromkeys((*_ROW_VERBS, "stateful", "window"), _RESULT_FIRST),
        "top": 'use .count("name") or .aggregate("name", …) of a sliding window, then .top(…)',
    },
}
_WHAT = {"Stream": "rows that have no key", "KeyedStream": "rows that only have a key", "window": "a window"}


class NoSuchVerb(TopologyError, AttributeError):
    """Error for a verb that no stream has. Also an AttributeError, so that `hasattr` and `getattr` with a default work as usual."""


def missing_verbs(kind: str) -> Callable[[object, str], Callable[..., Any]]:
    """Return the `__getattr__` of a kind of stream: a missing verb raises `TopologyError` at the line that calls it.

    A name that no stream has raises at once, with the most similar verb. Names that begin with `_` are Python's own: `copy` reads
    them.
    """

    def missing(stream: object, verb: str) -> Callable[..., Any]:
        hint = _HINTS.get(kind, {}).get(verb)
        if hint is None:
            if verb.startswith("_"):
                raise AttributeError(
                    f"{type(stream).__name__!r} object has no attribute {verb!r}", name=verb, obj=stream
                )
            raise _unknown(stream, verb)

        def refuse(*_: Any, **__: Any) -> Any:
            raise call_site().error(f"{verb}() does not work on {_WHAT[kind]}: {hint.format(verb=verb)}")

        return refuse

    return missing


def _unknown(stream: object, verb: str) -> NoSuchVerb:
    verbs = [name for name in dir(type(stream)) if not name.startswith("_")]
    close = get_close_matches(verb, verbs, 1)
    meant = f"did you mean .{close[0]}(…)?" if close else f"it has {', '.join(verbs)}"
    return NoSuchVerb(f"{call_site()}  a {type(stream).__name__} has no verb {verb!r}: {meant}")
