"""The verb `top`: the keys of greatest value, of all streams of `Change`."""

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, overload

from agiledart_dataflow.data.rows import Change, Ranking
from agiledart_dataflow.data.schema import generic
from agiledart_dataflow.graph.handles import StreamHandle, needs_name
from agiledart_dataflow.user_code.callsite import call_site
from agiledart_dataflow.user_code.error_policy import ErrorPolicy, error_policy

if TYPE_CHECKING:
    from agiledart_dataflow.graph.streams import Stream

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")


class RankingVerbs(StreamHandle[T]):
    """Verbs on values that change."""

    @overload
    def top(
        self: "RankingVerbs[Change[K, V, R]]",
        name: str,
        *,
        n: int,
        rank: Callable[[V], float | Decimal] | None = None,
        ties: Literal["newest", "key"] = "newest",
        compare: Literal["values", "keys"] = "values",
        emit: Literal["on_record"] = "on_record",
        on_error: ErrorPolicy = "fail",
    ) -> "Stream[Ranking[R, K, V]]": ...
    @overload
    def top(
        self: "RankingVerbs[Change[K, V, R]]",
        name: str,
        *,
        n: int,
        rank: Callable[[V], float | Decimal] | None = None,
        ties: Literal["newest", "key"] = "newest",
        compare: Literal["values", "keys"] = "values",
        emit: Literal["on_change"],
        on_error: ErrorPolicy = "fail",
    ) -> "Stream[Ranking[R | None, K, V]]": ...
    def top(
        self: "RankingVerbs[Change[Any, Any, Any]]",
        name: str,
        *,
        n: int,
        rank: Callable[[Any], Any] | None = None,
        ties: Literal["newest", "key"] = "newest",
        compare: Literal["values", "keys"] = "values",
        emit: Literal["on_record", "on_change"] = "on_record",
        on_error: ErrorPolicy = "fail",
    ) -> "Stream[Any]":
        """The n keys of greatest value, as a `Ranking` at each source record that finds it changed.

        Args:
            name: of the step; must be given, because it keeps state.
            n: how many places.
            rank: value → number by which to rank; the value itself when left out.
            ties: `newest` puts the key first whose value a record renewed last, then the smaller key; `key` the smaller
                key.
            compare: what counts as a change: any value of the n, or only which keys stand where.
            emit: `on_change` also speaks when time alone changed the ranking; `cause` is None then.
            on_error: what happens when `rank` raises: the job fails, or the change is skipped and counted (the key keeps its
                place), or it also goes to `.errors(name)`.
        """
        where = call_site()
        needs_name(name, "top", "busiest", where)
        if get_origin(self._row_type) is not Change:
            raise where.error(
                f"top() ranks rows of type Change (what a sliding window puts out), not {self._row_type!r}"
            )
        if not isinstance(n, int) or not 1 <= n <= 10_000:
            raise where.error(f"top() keeps 1 to 10,000 places, not {n!r}")
        if ties not in ("newest", "key") or compare not in ("values", "keys") or emit not in ("on_record", "on_change"):
            raise where.error(
                "top() knows ties='newest' or 'key', compare='values' or 'keys', emit='on_record' or 'on_change'"
            )
        key, value, cause = get_args(self._row_type)
        cause_type: Any = cause | None if emit == "on_change" else cause
        row_type = generic(Ranking, cause_type, key, value)
        options = (("n", str(n)), ("ties", ties), ("compare", compare), ("emit", emit))
        ranking = {
            "n": n,
            "newest_first": ties == "newest",
            "keys_only": compare == "keys",
            "on_change": emit == "on_change",
        }
        policy = error_policy(on_error, where)
        options = (*options, *policy["options"])
        make = {"ranking": ranking, **policy["make"]}
        return self._topology.stream(
            self._add(name, "top", row_type, where, function=rank or _itself, options=options, make=make),
        )


def _itself(value: Any) -> Any:
    return value
