"""What a failure costs each source, sink and step of an application, in words; and what its code must not do."""

from collections.abc import Mapping
from typing import Any

from agiledart_dataflow.plan.connectors import parse_connector
from agiledart_dataflow.plan.delivery import Delivery
from agiledart_dataflow.plan.losses import EMPTY, FAIL, MOVE, PREVIOUS, WAIT

MUST_NOT = "keep anything outside of what its step remembers (globals, files, connections): it is not brought back"
MUST_REPEAT = "look at clocks or draw random numbers before rows of several sources are merged: a replay has to make the same rows"
PROMISES = {
    Delivery.EXACTLY_ONCE: "every row counts once, also after a failure",
    Delivery.AT_LEAST_ONCE: "what it remembers survives a failure, and no row is lost; those of the last seconds are seen again",
    Delivery.AT_MOST_ONCE: "nothing is saved: when a host dies the application fails, and begins anew when it is submitted again",
}
_IF_STATE_LOST = {
    FAIL: "; when it cannot be rebuilt for a minute the application fails",
    EMPTY: "; when it cannot be rebuilt for a minute it begins empty",
    PREVIOUS: "; when it cannot be rebuilt for a minute everything goes on from the epoch before, so rows of one epoch come twice",
}
SEEN_AGAIN = "rows are seen at once, and stay; those behind the last epoch are there again"
ROLLED = ("roll_age", "roll_bytes")


def with_costs(response: Mapping[str, Any]) -> dict[str, Any]:
    """The facts, and for each step `after_a_failure`, whether it is `refused`, and for all `user_code_must_not`."""
    delivery = Delivery(response["delivery"])
    steps = []
    for step in response["steps"]:
        text, refused = _cost(step, delivery) if delivery.is_saved else (_unsaved(step), False)
        steps.append({**step, "after_a_failure": text, "refused": refused})
    must_not = [MUST_NOT, *([MUST_REPEAT] if response["merges"] else [])] if delivery.is_saved else []
    return {**response, "steps": steps, "user_code_must_not": must_not}


def _cost(step: Mapping[str, Any], delivery: Delivery) -> tuple[str, bool]:
    """(what a failure costs where the run is saved, whether that is refused when the application starts)."""
    if step["role"] == "source":
        return _cost_of_source(step)
    if step["role"] == "sink":
        return _cost_of_repeating_sink(step) if delivery.duplicates else _cost_of_sink(step)
    where = "the agent starts it again; when the host is gone a neighbour takes it over"
    if not step["has_state"]:
        return f"nothing to bring back; {where}", False
    what = "what it remembers by key" if step["keyed"] else "all that it remembers, whole"
    lost = _IF_STATE_LOST.get(step.get("if_lost", WAIT), "")
    return (
        f"{what} comes back from the last epoch, from the disk or from fragments on neighbours; {where}{lost}",
        False,
    )


def _cost_of_source(step: Mapping[str, Any]) -> tuple[str, bool]:
    from agiledart_connectors.plugins import source_guarantee

    connector = parse_connector(step["connector"])
    if step["sheds"]:
        return "rows that are shed are gone: take overload=block or spool", True
    if connector.path in ("", "-") and connector.kind in ("csv", "jsonl", "lines"):
        return "standard input cannot be read again", True
    if connector.option("follow", "0") == "1":
        return "a file that grows and may be rotated cannot be read again", True
    guarantee = source_guarantee(connector.kind)
    stays = _if_lost(step, "what it reads is there")
    is_gone = guarantee is not None and not guarantee.can_rewind
    if is_gone and step.get("if_lost") == MOVE:
        stays += "; what only its log had, behind the last epoch, is lost then"
    if step["has_log"] or is_gone:
        told = (
            ""
            if guarantee is None or guarantee.acknowledges == "never"
            else f"; acknowledged: {guarantee.acknowledges}"
        )
        return f"again from its log on the node's disk, behind the last epoch{told}; {stays}", False
    return f"read again from where it was at the last epoch; {stays}", False


def _cost_of_sink(step: Mapping[str, Any]) -> tuple[str, bool]:
    from agiledart_connectors.plugins import sink_guarantee
    from agiledart_connectors.sink_guarantees import duplicates_fault, sink_guarantee_text

    connector = parse_connector(step["connector"])
    guarantee = sink_guarantee(connector.kind)
    if guarantee is None or not guarantee.can_abort or connector.path in ("", "-"):
        fault = duplicates_fault(connector, guarantee)
        why = f" ({guarantee.duplicates})" if guarantee is not None and not guarantee.can_abort else ""
        if fault:
            return f"cannot take rows back{why}: {fault}", True
        return (
            f"rows behind the last epoch are written again, none is lost: {sink_guarantee_text(connector, guarantee)}",
            False,
        )
    if step.get("if_lost") == MOVE and connector.kind != "log":
        return "its file stays on its node, so it cannot move when that one is lost: write to a log (log:NAME)", True
    stays = _if_lost(step, "what it wrote is there")
    if connector.kind == "log":
        return f"readers see rows when their epoch is committed, each once; {stays}", False
    if connector.kind == "parquet" or any(connector.option(name) for name in ROLLED):
        return (
            f"files get their names when the epoch of their last row is committed, each row is in one; {stays}",
            False,
        )
    return f"rows are seen at once, and cut back to the last epoch; {stays}", False


def _cost_of_repeating_sink(step: Mapping[str, Any]) -> tuple[str, bool]:
    """The same with at-least-once; only sinks that cannot help it do as with exactly-once."""
    from agiledart_connectors.plugins import sink_guarantee
    from agiledart_connectors.sink_guarantees import confirms_all_rows, is_idempotent, sink_guarantee_text

    connector = parse_connector(step["connector"])
    guarantee = sink_guarantee(connector.kind)
    is_file = guarantee is not None and guarantee.can_abort and connector.path not in ("", "-")
    is_rolled = connector.kind == "parquet" or any(connector.option(name) for name in ROLLED)
    if is_file and (is_rolled or step.get("if_lost") == MOVE):
        return _cost_of_sink(step)
    stays = f"; {_if_lost(step, 'what it wrote is there')}" if is_file else ""
    if is_idempotent(connector, guarantee):
        return (
            f"rows behind the last epoch are written again, none is lost: {sink_guarantee_text(connector, guarantee)}",
            False,
        )
    if not is_file and not confirms_all_rows(connector, guarantee):
        how = f": add {guarantee.confirms_with}=1" if guarantee is not None and guarantee.confirms_with else ""
        return f"{SEEN_AGAIN}; nobody says whether they arrive{how}", False
    return f"{SEEN_AGAIN}, none is lost{stays}", False


def _if_lost(step: Mapping[str, Any], why: str) -> str:
    """What becomes of the application when the node of a source or sink is gone."""
    node = _names(step) or "its node"
    match step.get("if_lost", WAIT):
        case "move":
            return f"without {node} another node goes on with it"
        case "fail":
            return f"without {node} the application fails"
    return f"without {node} the others wait: {why}"


def _unsaved(step: Mapping[str, Any]) -> str:
    if step["role"] == "step" and not step["has_state"]:
        return "nothing of its own"
    return "what it had read is read anew" if step["role"] == "source" else "what it remembered or wrote begins anew"


def _names(step: Mapping[str, Any]) -> str:
    return ", ".join(step["nodes"])
