"""`Stream`: rows on an edge of a graph, with all that can be done with them."""

from typing import TYPE_CHECKING, Any, TypeVar

from agiledart_dataflow.graph.columnar_verbs import ColumnarVerbs
from agiledart_dataflow.graph.missing_verbs import missing_verb
from agiledart_dataflow.graph.ranking_verbs import RankingVerbs
from agiledart_dataflow.graph.side_verbs import SideVerbs

T = TypeVar("T")


class Stream(ColumnarVerbs[T], RankingVerbs[T], SideVerbs[T]):
    """Rows of type T on their way. The verbs stand in the classes that it is made of."""

    if not TYPE_CHECKING:  # type checkers go on to report these at once

        def __getattr__(self, verb: str) -> Any:
            return missing_verb(self, "Stream", verb)
