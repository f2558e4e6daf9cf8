"""The verbs that take up what a step puts beside its rows: late rows, records that user code raised at, the user's own."""

from typing import TYPE_CHECKING, Any, TypeVar

from agiledart_dataflow.data.rows import DeadLetter, Either
from agiledart_dataflow.data.schema import generic
from agiledart_dataflow.graph.handles import StreamHandle, needs_name
from agiledart_dataflow.user_code.callsite import CallSite, call_site

if TYPE_CHECKING:
    from agiledart_dataflow.graph.streams import Stream

T = TypeVar("T")
U = TypeVar("U")

MAX_TAG = 64
_OWN_TAGS = ("late", "errors")


class SideVerbs(StreamHandle[T]):
    """Verbs on the step that this stream leaves: each gives another stream of the same step."""

    def late(self, name: str) -> "Stream[Any]":
        """The rows that came too late for a source, or for a window with `allowed_lateness`, in the order in which they came.

        Their positions are those at which they came, so time does not run backwards behind them.
        """
        where = call_site()
        step = self._topology.steps[self._index]
        if step.kind == "source":
            return self._side(name, "late", step.row_type, where)
        if getattr(step.make.get("window"), "lateness_ms", 0):
            return self._side(name, "late", self._taken(), where)
        raise where.error(
            f"rows are late for sources and for windows with allowed_lateness; {step.name!r} is a {step.kind}"
        )

    def errors(self, name: str) -> "Stream[DeadLetter[Any]]":
        """The records at which the step's user code raised, when its policy is `on_error="dead_letter"`.

        A join of rows of two types gives each as `Either(left, right)`, None at the side where it did not come from.
        """
        where = call_site()
        step = self._topology.steps[self._index]
        if step.make.get("on_error") != "dead_letter":
            raise where.error(f'{step.name!r} keeps no dead letters: give it on_error="dead_letter"')
        left, right = self._taken(), step.make.get("other_rows")
        taken = left if right is None else generic(Either, left, right)
        return self._side(name, "errors", generic(DeadLetter, taken), where)

    def side(self, name: str, tag: str, *, rows: type[U]) -> "Stream[U]":
        """The rows of a type that a `KeyedOperator` puts out with `context.emit_to(tag, row)`."""
        where = call_site()
        step = self._topology.steps[self._index]
        if step.kind not in ("stateful", "broadcast"):
            raise where.error(f"only stateful steps put out rows beside their own; {step.name!r} is a {step.kind}")
        if not isinstance(tag, str) or not tag or len(tag) > MAX_TAG or tag in _OWN_TAGS:
            raise where.error(f"a tag has 1 to {MAX_TAG} characters and is not one of {', '.join(_OWN_TAGS)}: {tag!r}")
        return self._side(name, tag, rows, where)

    def _taken(self) -> Any:
        """The type of the rows that the step takes."""
        step = self._topology.steps[self._index]
        return self._topology.steps[step.inputs[0]].row_type

    def _side(self, name: str, tag: str, row_type: Any, where: CallSite) -> "Stream[Any]":
        needs_name(name, tag, f"{tag}-rows", where)
        return self._topology.stream(self._add(name, "side", row_type, where, options=(("tag", tag),)))
