"""Texts of `agiledart explain recovery`: the cost of a failure for each source, sink and step, and rules for user code."""

from collections.abc import Mapping
from typing import Any

from agiledart_dataflow.plan.connectors import parse_connector
from agiledart_dataflow.plan.delivery import Delivery
from agiledart_dataflow.plan.losses import EMPTY, FAIL, MOVE, PREVIOUS, WAIT
from agiledart_recovery.survival import Rewind, Survival, rewind_of, survival_of

MUST_NOT = "keep data outside the state of its step (globals, files, connections): a restart does not restore them"
MUST_REPEAT = (
    "read clocks or draw random numbers before rows of several sources are merged: a replay must produce the same rows"
)
PROMISES = {
    Delivery.SURVIVE: "it survives the loss of a node, and saves as little as each step allows; rows after the last checkpoint may"
    " appear again",
    Delivery.EXACTLY_ONCE: "each row takes effect once, also after a failure",
    Delivery.AT_LEAST_ONCE: "state survives a failure and no row is lost; sinks emit the rows of the last seconds again",
    Delivery.AT_MOST_ONCE: "nothing is saved: the application fails when a host dies; submitting it again starts from scratch",
}
_IF_STATE_LOST = {
    FAIL: "; the application fails if the state cannot be rebuilt for a minute",
    EMPTY: "; the step starts empty if the state cannot be rebuilt for a minute",
    PREVIOUS: "; if not rebuilt within a minute, all steps restart from the previous checkpoint, and some rows are duplicated",
}
SEEN_AGAIN = "rows are visible at once; rows after the last checkpoint appear again"
ROLLED = ("roll_age", "roll_bytes")


def with_costs(response: Mapping[str, Any]) -> dict[str, Any]:
    """Return the response with `after_a_failure` and `refused` for each step, and `user_code_must_not` for all."""
    delivery = Delivery(response["delivery"])
    steps = []
    for step in response["steps"]:
        text, refused = (
            _cost(step, delivery, merges=response["merges"]) if delivery.is_saved else (_unsaved(step), False)
        )
        steps.append({**step, "after_a_failure": text, "refused": refused})
    must_not = [MUST_NOT, *([MUST_REPEAT] if response["merges"] else [])] if delivery.is_saved else []
    return {**response, "steps": steps, "user_code_must_not": must_not}


def _cost(step: Mapping[str, Any], delivery: Delivery, *, merges: bool) -> tuple[str, bool]:
    """Return (the cost of a failure in a run with checkpoints, whether the application is refused at its start)."""
    if step["role"] == "source":
        return (cost_of_surviving_source(step, merges=merges), False) if delivery.saves_less else _cost_of_source(step)
    if step["role"] == "sink":
        kind = parse_connector(step["connector"]).kind
        is_cut = delivery.saves_less and kind in ("csv", "jsonl") and not delivery.emits_at_once(kind)
        return _cost_of_repeating_sink(step) if delivery.duplicates and not is_cut else _cost_of_sink(step)
    where = f"the agent restarts it; if the host fails, {_successor(step)} takes it over"
    if not step["has_state"] and delivery.saves_less:
        return f"has no state, so nothing of it is saved but counts, in the register; {where}", False
    if not step["has_state"]:
        return f"has no state; {where}", False
    state = "its state by key" if step["keyed"] else "its whole state"
    lost = _IF_STATE_LOST.get(step.get("if_lost", WAIT), "")
    return f"{state} is restored from the last checkpoint, {_where_saved(step)}; {where}{lost}", False


def _successor(step: Mapping[str, Any]) -> str:
    """Return which node takes a step over."""
    if not step.get("standby"):
        return "a neighbour"
    nodes = step.get("standbys") or ()
    return f"its standby on {', '.join(nodes)}" if nodes else "its standby, or a neighbour while there is none,"


def _where_saved(step: Mapping[str, Any]) -> str:
    """Return where the state of a step lies, with its size and its holders as far as they are known."""
    holders, size = step.get("replica_nodes") or (), step.get("bytes") or 0
    if not holders:
        return "from the disk or from fragments on neighbours"
    how = survival_of(size, len(holders), has_state=True)
    what = "copies" if how is Survival.COPIED else "fragments"
    return f"from the disk or from {what} of its {size:,} bytes on {', '.join(holders)}"


def rewind_of_source(step: Mapping[str, Any], *, merges: bool) -> Rewind:
    """Return what a run that saves less reads of a source's rows after its last checkpoint."""
    from agiledart_connectors.plugins import source_guarantee
    from agiledart_connectors.source_guarantees import traits_of_source

    connector = parse_connector(step["connector"])
    spools = step.get("spools", False)
    is_clocked, is_merged = step["has_log"] and not spools, merges and (spools or not step["sheds"])
    guarantee = source_guarantee(connector.kind)
    return rewind_of(traits_of_source(connector, guarantee, spools=spools, is_clocked=is_clocked, merges=is_merged))


def cost_of_surviving_source(step: Mapping[str, Any], *, merges: bool) -> str:
    """Return the cost for a source of a run that saves less, which refuses none."""
    stays = _if_lost(step, "its input is there")
    match rewind_of_source(step, merges=merges):
        case Rewind.LOG:
            return f"rows after the last checkpoint are read again from its log on the node's disk; {stays}"
        case Rewind.FOLLOWED:
            return (
                f"read again behind the lines of the last checkpoint, or from its beginning if it was rotated; {stays}"
            )
        case Rewind.LOST:
            return f"rows after the last checkpoint are lost and counted, because they cannot be read again; {stays}"
    return f"read again from its position at the last checkpoint; {stays}"


def _cost_of_source(step: Mapping[str, Any]) -> tuple[str, bool]:
    from agiledart_connectors.plugins import source_guarantee

    connector = parse_connector(step["connector"])
    if step["sheds"]:
        return "rows that are shed cannot be read again: use overload=block or overload=spool", True
    if connector.path in ("", "-") and connector.kind in ("csv", "jsonl", "lines"):
        return "standard input cannot be read again", True
    if connector.option("follow", "0") == "1":
        return "a file that grows and may be rotated cannot be read again", True
    guarantee = source_guarantee(connector.kind)
    stays = _if_lost(step, "its input is there")
    is_gone = guarantee is not None and not guarantee.can_rewind
    if is_gone and step.get("if_lost") == MOVE:
        stays += "; rows after the last checkpoint that only its log held are lost then"
    if step["has_log"] or is_gone:
        acknowledged = (
            ""
            if guarantee is None or guarantee.acknowledges == "never"
            else f"; acknowledged: {guarantee.acknowledges}"
        )
        return (
            f"rows after the last checkpoint are read again from its log on the node's disk{acknowledged}; {stays}",
            False,
        )
    return f"read again from its position at the last checkpoint; {stays}", False


def _cost_of_sink(step: Mapping[str, Any]) -> tuple[str, bool]:
    from agiledart_connectors.plugins import sink_guarantee
    from agiledart_connectors.sink_guarantees import duplicates_fault, sink_guarantee_text

    connector = parse_connector(step["connector"])
    guarantee = sink_guarantee(connector.kind)
    if guarantee is None or not guarantee.can_abort or connector.path in ("", "-"):
        fault = duplicates_fault(connector, guarantee)
        why = f" ({guarantee.duplicates})" if guarantee is not None and not guarantee.can_abort else ""
        if fault:
            return f"cannot withdraw rows{why}: {fault}", True
        return (
            f"rows after the last checkpoint are written again, none is lost: {sink_guarantee_text(connector, guarantee)}",
            False,
        )
    if step.get("if_lost") == MOVE and connector.kind != "log":
        return (
            "its file stays on its node, so the sink cannot move when the node is lost: write to a log (log:NAME)",
            True,
        )
    stays = _if_lost(step, "its output is there")
    if connector.kind == "log":
        return f"readers see each row once, when its checkpoint is committed; {stays}", False
    if connector.kind == "parquet" or any(connector.option(name) for name in ROLLED):
        return (
            f"a file gets its name when the checkpoint of its last row is committed, and each row is in one file; {stays}",
            False,
        )
    return f"rows are visible at once; a restart truncates the file to the last checkpoint; {stays}", False


def _cost_of_repeating_sink(step: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the cost for a sink with at-least-once delivery; rolled files behave as with exactly-once."""
    from agiledart_connectors.plugins import sink_guarantee
    from agiledart_connectors.sink_guarantees import confirms_all_rows, is_idempotent, sink_guarantee_text

    connector = parse_connector(step["connector"])
    guarantee = sink_guarantee(connector.kind)
    is_file = guarantee is not None and guarantee.can_abort and connector.path not in ("", "-")
    is_rolled = connector.kind == "parquet" or any(connector.option(name) for name in ROLLED)
    if is_file and (is_rolled or step.get("if_lost") == MOVE):
        return _cost_of_sink(step)
    stays = f"; {_if_lost(step, 'its output is there')}" if is_file else ""
    if is_idempotent(connector, guarantee):
        return (
            f"rows after the last checkpoint are written again, none is lost: {sink_guarantee_text(connector, guarantee)}",
            False,
        )
    if not is_file and not confirms_all_rows(connector, guarantee):
        how = f": add {guarantee.confirms_with}=1" if guarantee is not None and guarantee.confirms_with else ""
        return f"{SEEN_AGAIN}; the sink does not confirm that rows arrive{how}", False
    return f"{SEEN_AGAIN}, none is lost{stays}", False


def _if_lost(step: Mapping[str, Any], why: str) -> str:
    """Return what happens to the application when the node of a source or sink fails."""
    node = _names(step) or "its node"
    match step.get("if_lost", WAIT):
        case "move":
            return f"without {node} another node takes it over"
        case "fail":
            return f"without {node} the application fails"
    return f"without {node} the application waits: {why}"


def _unsaved(step: Mapping[str, Any]) -> str:
    if step["role"] == "step" and not step["has_state"]:
        return "has no state"
    return "starts reading from the beginning" if step["role"] == "source" else "starts empty"


def _names(step: Mapping[str, Any]) -> str:
    return ", ".join(step["nodes"])
