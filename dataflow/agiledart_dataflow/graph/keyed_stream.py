"""`KeyedStream`: rows with a key, with all that can be done with them."""

from typing import TYPE_CHECKING, Any, TypeVar, overload

from agiledart_dataflow.event_time.windows import Counted, Panes, Session, Sliding
from agiledart_dataflow.graph.join_verbs import JoinVerbs
from agiledart_dataflow.graph.keyed_verbs import KeyedVerbs
from agiledart_dataflow.graph.missing_verbs import missing_verb
from agiledart_dataflow.graph.windowed_streams import PaneStream, SlidingStream
from agiledart_dataflow.user_code.callsite import call_site

K = TypeVar("K")
R = TypeVar("R")


class KeyedStream(KeyedVerbs[K, R], JoinVerbs[K, R]):
    """Rows of type R with a key of type K. The verbs stand in the classes that it is made of."""

    if not TYPE_CHECKING:  # type checkers go on to report these at once

        def __getattr__(self, verb: str) -> Any:
            return missing_verb(self, "KeyedStream", verb)

    @overload
    def window(self, window: Sliding) -> "SlidingStream[K, R]": ...
    @overload
    def window(self, window: Panes | Session | Counted) -> "PaneStream[K, R]": ...
    def window(self, window: Any) -> Any:
        """Divide each key's rows: `sliding(size)`, `hopping(size, every)`, `tumbling(size)`, `session(gap)` by event time,
        `counted(size)` by number.
        """
        if isinstance(window, Sliding):
            return SlidingStream(self, window)
        if isinstance(window, Panes | Session | Counted):
            return PaneStream(self, window)
        raise call_site().error(
            f"window() takes sliding(…), hopping(…), tumbling(…), session(…) or counted(…), not {window!r}"
        )
