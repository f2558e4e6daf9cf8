"""Verbs on windows of keyed rows and on values that change: aggregates and rankings."""

from collections.abc import Callable
from typing import Any, get_args, get_origin

from agiledart_dataflow.aggregation.aggregators import Count
from agiledart_dataflow.aggregation.make_operator import aggregate_state_type, aggregate_value_type, keyed_window
from agiledart_dataflow.aggregation.named_aggregates import named_window
from agiledart_dataflow.data.rows import Change, Pane, Ranking
from agiledart_dataflow.data.schema import generic
from agiledart_dataflow.event_time.windows import Panes, Sliding, Window
from agiledart_dataflow.graph.graph import KeyedRows, Rows, needs_name
from agiledart_dataflow.graph.keyed_verbs import Keep, check_keep, itself
from agiledart_dataflow.plan.specification import LATENESS, Options
from agiledart_dataflow.plan.step_parts import StateParts, TopParts, WindowParts
from agiledart_dataflow.user_code.callsite import call_site
from agiledart_dataflow.user_code.error_policy import ErrorPolicy, policy_options


def aggregated(
    keyed: KeyedRows,
    window: Window,
    name: str,
    aggregator: Any,
    results: dict[str, Any],
    on_error: ErrorPolicy,
    keep: Keep,
) -> Rows:
    """Return the value of an aggregator, or named results, for each key's windows."""
    where = call_site()
    example = "route-frequency" if isinstance(window, Sliding) else "per-minute"
    needs_name(name, "count" if isinstance(aggregator, Count) else "aggregate", example)
    if results and aggregator is not None:
        raise where.error("aggregate() takes one aggregator, or named results, not both")
    policy = policy_options(on_error, where)
    check_keep(name, keep)
    flat: Callable[[Any], Any] | None = None
    named = None
    if results:
        assert not isinstance(window, Sliding)  # its verb takes one aggregate only
        named = named_window(name, keyed.key_of, keyed.key_type, keyed.type, results, where, window.time_text)
        aggregator, row_type, flat = named.aggregator, named.row_type, named.flat
        step_option = ("results", repr(sorted(results.items())))
    else:
        value = aggregate_value_type(aggregator, keyed.type, where)
        slides = isinstance(window, Sliding)
        row_type = (
            generic(Change, keyed.key_type, value, keyed.type) if slides else generic(Pane, keyed.key_type, value)
        )
        step_option = ("aggregate", type(aggregator).__name__)
    operator = keyed_window(window, aggregator, keyed.type, flat, on_disk=keep == "disk")
    return keyed.add(
        name,
        "window" if operator is None else "keyed-window",
        row_type,
        options=(("window", str(window)), step_option, *_lateness(window), *policy, *_on_disk(keep)),
        on_error=on_error,
        window=WindowParts(window, aggregator, aggregate_state_type(aggregator, keyed.type), named, keyed.type),
        state=None if operator is None else StateParts(*operator, keep),
    )


def _on_disk(keep: Keep) -> Options:
    return (("keep", keep),) if keep == "disk" else ()


def _lateness(window: object) -> Options:
    late_by = window.lateness_ms if isinstance(window, Panes) else 0
    return ((LATENESS, str(late_by)),) if late_by else ()


def top(
    rows: Rows,
    name: str,
    n: int,
    rank: Callable[[Any], Any] | None,
    ties: str,
    compare: str,
    emit: str,
    on_error: ErrorPolicy,
) -> Rows:
    """Return the n keys of greatest value."""
    where = call_site()
    needs_name(name, "top", "busiest")
    if get_origin(rows.type) is not Change:
        raise where.error(f"top() ranks rows of type Change (the output of a sliding window), not {rows.type!r}")
    if not isinstance(n, int) or not 1 <= n <= 10_000:
        raise where.error(f"top() keeps 1 to 10,000 places, not {n!r}")
    if ties not in ("newest", "key") or compare not in ("values", "keys") or emit not in ("on_record", "on_change"):
        raise where.error(
            "top() knows ties='newest' or 'key', compare='values' or 'keys', emit='on_record' or 'on_change'"
        )
    key, value, cause = get_args(rows.type)
    on_change = emit == "on_change"
    row_type = generic(Ranking, cause | None if on_change else cause, key, value)
    options = (("n", str(n)), ("ties", ties), ("compare", compare), ("emit", emit))
    return rows.add(
        name,
        "top",
        row_type,
        function=rank or itself,
        options=(*options, *policy_options(on_error, where)),
        on_error=on_error,
        top=TopParts(n, ties == "newest", compare == "keys", on_change),
    )
