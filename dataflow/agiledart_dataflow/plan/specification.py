"""`Specification`: a topology as data, without functions or file names, equal on every node that built the same code.

Nodes run the builder again from the bundle and compare `digest()`; a difference means that the code does not build the
same graph everywhere (it read a clock, a file, an environment variable).
"""

from hashlib import sha256
from typing import Final

import msgspec

from agiledart_dataflow.data.carries import Carries
from agiledart_dataflow.event_time.windows import Panes, Sliding, Window, read_window
from agiledart_dataflow.plan.connectors import ConnectorSpecification
from agiledart_dataflow.plan.placement_rules import ExpectedFigures, PlacementRules, figures_of, rules_of
from agiledart_dataflow.plan.step_kinds import KEYED_PATH, StepKind, kind_named
from agiledart_kernel.errors import TopologyError

FORMAT = 3
"""Version of this form; a node refuses a version that it does not know. It grows with every change of the form of a specification,
its digest above all, so that nodes of two versions report the versions in place of blaming the user's code."""

Options = tuple[tuple[str, str], ...]

LATENESS: Final = "lateness_ms"
"""Option of a window that accepts late rows for a while."""


AT_SOURCE: Final = "at_source"
"""Option of a step that runs in the instance of its source, before the rows get their event times."""

PATHS = "paths"
"""Option of a step with the paths that its rows may take to other nodes."""


def release(software: str, form: int) -> str:
    """Return a version of AgileDart and its form of specifications, for people; older nodes did not report theirs."""
    return (
        f"agiledart {software} with specification {form}"
        if software
        else "an older agiledart that does not say its version"
    )


class StepSpecification(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One step of the graph.

    Attributes:
        index: its place in `Specification.steps`; inputs always come before.
        name: unique in the topology.
        kind: the name of its row in the table of step kinds (`traits`).
        inputs: indices of the steps whose rows it takes.
        keyed: True when rows reach it by key.
        row_type: structural text of the type of the rows that it puts out (a sink: that it takes).
        key_type: structural text of the key's type, "" when not keyed.
        options: the rest of its definition, as (name, text) in order of name.
        connector: of a source or a sink.
        at: the node to which it is pinned, or "".
        needs: data that it needs beside each row that enters it.
        reacts_to_time: it acts when time passes without rows.
    """

    index: int
    name: str
    kind: str
    inputs: tuple[int, ...] = ()
    keyed: bool = False
    row_type: str = ""
    key_type: str = ""
    options: Options = ()
    connector: ConnectorSpecification | None = None
    at: str = ""
    needs: Carries = "positions"
    reacts_to_time: bool = True

    @property
    def traits(self) -> StepKind:
        """Row of its kind in the table of step kinds."""
        return kind_named(self.kind)

    def option(self, name: str) -> str:
        """Return the text of an option; "" if the step does not have it."""
        return dict(self.options).get(name, "")

    @property
    def rules(self) -> PlacementRules:
        """Rules about its nodes. Raises `TopologyError` for a text that no builder writes."""
        return rules_of(dict(self.options))

    @property
    def expected(self) -> ExpectedFigures:
        """Figures that its builder expects. Raises `TopologyError` as `rules`."""
        return figures_of(dict(self.options))

    @property
    def slo_ms(self) -> float | None:
        """Milliseconds that a row may take; None: it has no service level, or one that no builder writes."""
        try:
            slo_ms = self.expected.slo_ms
        except TopologyError:
            return None
        return slo_ms if slo_ms is not None and slo_ms > 0 else None

    @property
    def side(self) -> str:
        """Tag of the side output that it takes from the step before it; "" for all other steps."""
        return self.option("tag")

    @property
    def is_at_source(self) -> bool:
        """True for a step that runs in the instance of its source, before the rows get their event times."""
        return bool(self.option(AT_SOURCE))

    @property
    def panes(self) -> Panes | None:
        """Its tumbling or hopping windows in memory, which the end of the input closes; None for any other step."""
        window = self._own_window
        return window if isinstance(window, Panes) else None

    @property
    def makes_one_at_most(self) -> bool:
        """True when one row that enters gives one row at most."""
        counting, yields = self.traits.counting, self.option("yields")
        if counting == "makes":
            return yields == "optional" or (self.traits.loop == "batch" and not yields)
        return counting in ("keeps", "sieves")

    def path_elements(self, *, has_lateness: bool) -> int:
        """Return the number of elements that it appends to the positions of rows that enter it.

        Args:
            has_lateness: whether positions state how late a row was.
        """
        traits, window = self.traits, self._own_window
        if traits.stage == "source":
            return int(has_lateness)
        if isinstance(window, Panes):
            return KEYED_PATH if has_lateness else int(window.most_at_once > 1)
        makes_many = traits.counting == "makes" and not self.makes_one_at_most
        return traits.path + (makes_many or isinstance(window, Sliding))

    @property
    def _own_window(self) -> Window | None:
        """The window of a step whose operator is a window; None where a keyed operator or a join implements it."""
        written = self.option("window")
        return read_window(written) if written and self.traits.path_by_window else None


class Specification(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A whole topology as data."""

    name: str
    steps: tuple[StepSpecification, ...]
    format: int = FORMAT

    def digest(self) -> bytes:
        """Return the SHA-256 of the canonical MessagePack form."""
        return sha256(msgspec.msgpack.encode(self)).digest()

    def consumers(self, index: int) -> tuple[StepSpecification, ...]:
        """Return the steps that take rows from a step, one entry for each edge."""
        return tuple(step for step in self.steps for source in step.inputs if source == index)

    @property
    def sources(self) -> tuple[StepSpecification, ...]:
        """All sources, in order."""
        return tuple(step for step in self.steps if step.traits.stage == "source")

    @property
    def sinks(self) -> tuple[StepSpecification, ...]:
        """All sinks, in order."""
        return tuple(step for step in self.steps if step.traits.stage == "sink")

    @property
    def lateness_ms(self) -> int:
        """Lateness in ms up to which sources accept rows: the largest allowed lateness of all windows.

        Where it is above zero, positions state how late each row was, in the first element of their path.
        """
        return max((int(value) for step in self.steps for name, value in step.options if name == LATENESS), default=0)
