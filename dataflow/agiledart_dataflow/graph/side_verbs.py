"""Verbs that read a step's side outputs: late rows, records at which user code raised, and the user's own tags."""

from typing import Any

from agiledart_dataflow.data.rows import DeadLetter, Either
from agiledart_dataflow.data.schema import generic
from agiledart_dataflow.event_time.windows import Panes
from agiledart_dataflow.graph.graph import Rows, needs_name
from agiledart_dataflow.graph.source_times import timed_source
from agiledart_dataflow.user_code.callsite import call_site

MAX_TAG = 64
_OWN_TAGS = ("late", "errors")


def late(rows: Rows, name: str) -> Rows:
    """Return the rows that came too late for the step."""
    where = call_site()
    step = rows.step
    if (source := timed_source(rows.graph, step)) is not None:
        return _beside(Rows(rows.graph, source), name, "late", rows.type)
    if step.source is not None:
        return _beside(rows, name, "late", rows.type)
    if step.window is not None and isinstance(step.window.window, Panes) and step.window.window.lateness_ms:
        return _beside(rows, name, "late", _taken(rows))
    raise where.error(
        f"rows are late for sources and for windows with allowed_lateness; {step.name!r} is a {step.kind}"
    )


def errors(rows: Rows, name: str) -> Rows:
    """Return the records at which the step's user code raised; for a source the malformed ones."""
    where = call_site()
    step = rows.step
    if step.source is not None:
        of_connector = "" if step.connector is None else step.connector.option("malformed")
        if (step.source.malformed or of_connector) != "dead_letter":
            raise where.error(f'{step.name!r} keeps no dead letters: give source() malformed="dead_letter"')
        return _beside(rows, name, "errors", generic(DeadLetter, str))
    if step.on_error != "dead_letter":
        raise where.error(f'{step.name!r} keeps no dead letters: give it on_error="dead_letter"')
    left, right = _taken(rows), None if step.state is None else step.state.other_rows
    taken = left if right is None else generic(Either, left, right)
    return _beside(rows, name, "errors", generic(DeadLetter, taken))


def side(rows: Rows, name: str, tag: str, row_type: Any) -> Rows:
    """Return the rows that the step's own code puts out under a tag."""
    where = call_site()
    step = rows.step
    if not step.traits.tags:
        raise where.error(f"only stateful steps put out rows beside their own; {step.name!r} is a {step.kind}")
    if not isinstance(tag, str) or not tag or len(tag) > MAX_TAG or tag in _OWN_TAGS:
        raise where.error(f"a tag has 1 to {MAX_TAG} characters and is not one of {', '.join(_OWN_TAGS)}: {tag!r}")
    return _beside(rows, name, tag, row_type)


def _taken(rows: Rows) -> Any:
    """Return the type of the rows that the step takes."""
    return rows.graph.steps[rows.step.inputs[0]].row_type


def _beside(rows: Rows, name: str, tag: str, row_type: Any) -> Rows:
    needs_name(name, tag, f"{tag}-rows")
    return rows.add(name, "side", row_type, options=(("tag", tag),))
