"""Table of step kinds: all that the rest of the engine must know of a kind of step, without the step's code.

No code compares kinds by their names: code that treats kinds differently reads the kind's row of this table. A new kind is a row
here, a verb in `graph/`, and an operator in `operators/` or `aggregation/`; planning, ledger, metrics and forming need no change.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from agiledart_dataflow.data.carries import Carries

StageKind = Literal["source", "operator", "sink"]
"""Kind of the stage that begins with a step, for its driver."""

Loop = Literal["map", "filter", "many", "batch"]
"""Result of a stage's generated loop for one row: one row, the row or nothing, any number, or all rows of a batch at once."""

Inputs = Literal["none", "one", "two", "any"]
"""Number of streams that a step takes; the rows of `two` may be of different types."""

Counting = Literal["source", "keeps", "sieves", "makes", "takes", "each"]
"""Rule by which the ledger counts a step's rows.

`keeps`: every row comes out, except for errors; `sieves`: it comes out or is dropped; `makes`: it gives any number, unless an
option limits it to one; `takes`: it goes into a state, from which results are made; `each`: into a state, and one result comes at
once.
"""

KEYED_PATH: Final = 2
"""Path elements that `operators.keyed_step` appends: −1 and the number of the row, or the timer's number and the row's."""


@dataclass(frozen=True)
class StepKind:
    """One kind of step.

    Attributes:
        name: its name in specifications.
        stage: kind of the stage that begins with it.
        loop: how a stage's loop treats a row, of a stateless kind, which joins the stage before it; None for all others.
        runs_once: it has one instance, whatever parallelism the user requests.
        inputs: number of streams that it takes.
        shares_second: the rows of its second input go whole to every instance.
        has_state: an instance of it remembers rows.
        path: elements that it appends to positions; a step that `makes` many rows of one appends one more.
        path_by_window: its window gives the number of elements instead.
        path_anew: its output has these elements only, whatever came in.
        needs: least data beside the rows that enter it; the step's parts may need more, or allow less.
        reacts_to_time: it acts when time passes without rows.
        user_timers: users' code decides whether it reacts to time.
        tags: users' code may put out rows beside its own, each kind under a tag.
        by_event_time: it makes no sense for rows without event times.
        counting: how the ledger counts it.
        columnar: it takes columns as well as rows, whatever its parts.
    """

    name: str
    stage: StageKind = "operator"
    loop: Loop | None = None
    runs_once: bool = False
    inputs: Inputs = "one"
    shares_second: bool = False
    has_state: bool = False
    path: int = 0
    path_by_window: bool = False
    path_anew: bool = False
    needs: Carries = "positions"
    reacts_to_time: bool = True
    user_timers: bool = False
    tags: bool = False
    by_event_time: bool = False
    counting: Counting = "takes"
    columnar: bool = False

    @property
    def is_stateless(self) -> bool:
        """True for a kind that treats each row by itself."""
        return self.loop is not None

    @property
    def is_bare(self) -> bool:
        """True for a kind that passes its rows on and has no operator: sinks, unions, side outputs."""
        return self.loop is None and not self.has_state and self.stage != "source"

    @property
    def joins(self) -> bool:
        """True for a kind with two inputs whose rows may be of different types; the branch number tells them apart."""
        return self.inputs == "two"

    @property
    def branches(self) -> bool:
        """True for a kind whose inputs' positions are padded to one length and end in the branch number."""
        return self.inputs in ("two", "any")


def _stateless(name: str, loop: Loop, counting: Counting, *, columnar: bool = False) -> StepKind:
    return StepKind(name, loop=loop, needs="rows", reacts_to_time=False, counting=counting, columnar=columnar)


def _keyed(
    name: str,
    counting: Counting = "takes",
    *,
    by_event_time: bool = False,
    user_timers: bool = False,
    tags: bool = False,
) -> StepKind:
    return StepKind(
        name,
        has_state=True,
        path=KEYED_PATH,
        by_event_time=by_event_time,
        user_timers=user_timers,
        tags=tags,
        counting=counting,
    )


def _join(name: str, *, by_event_time: bool = False, shares_second: bool = False, tags: bool = False) -> StepKind:
    return StepKind(
        name,
        inputs="two",
        shares_second=shares_second,
        has_state=True,
        path=KEYED_PATH + 1,
        by_event_time=by_event_time,
        tags=tags,
    )


_KINDS = (
    StepKind(
        "source",
        stage="source",
        runs_once=True,
        inputs="none",
        needs="rows",
        reacts_to_time=False,
        counting="source",
    ),
    _stateless("map", "map", "keeps"),
    _stateless("filter", "filter", "sieves"),
    _stateless("flat_map", "many", "makes"),
    _stateless("where", "filter", "sieves", columnar=True),
    _stateless("with_columns", "map", "keeps", columnar=True),
    _stateless("select", "map", "keeps", columnar=True),
    _stateless("map_batches", "batch", "makes", columnar=True),
    StepKind("union", inputs="any", path=1, needs="rows", reacts_to_time=False, counting="keeps"),
    StepKind("side", needs="rows", reacts_to_time=False, counting="keeps"),
    _keyed("stateful", user_timers=True, tags=True),
    _keyed("running", "each"),
    StepKind("running-values", has_state=True, needs="rows", reacts_to_time=False, counting="each"),
    _keyed("distinct", "sieves"),
    _keyed("pattern", by_event_time=True),
    StepKind("window", has_state=True, path_by_window=True, by_event_time=True),
    _keyed("keyed-window", by_event_time=True),
    _join("window-join", by_event_time=True),
    _join("interval-join", by_event_time=True),
    _join("lookup"),
    _join("broadcast", shares_second=True, tags=True),
    StepKind("top", runs_once=True, has_state=True, path=1, path_anew=True),
    StepKind("sink", stage="sink", runs_once=True, reacts_to_time=False, counting="keeps"),
)

STEP_KINDS: Final = MappingProxyType({kind.name: kind for kind in _KINDS})
"""Name → kind, of all kinds."""


def kind_named(name: str) -> StepKind:
    """Return the kind with this name; for a kind that only another version knows, a plain operator of that name.

    Planning refuses such a kind; code that only shows or counts steps can use it.
    """
    return STEP_KINDS.get(name) or StepKind(name)
