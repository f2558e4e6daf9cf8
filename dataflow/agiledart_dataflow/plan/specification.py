"""`Specification`: a topology as data. No functions, no file names: equal on every node that built the same code.

Nodes run the builder again from the bundle and compare `digest()`; a difference means that the code does not build the
same graph everywhere (it read a clock, a file, an environment variable).
"""

from hashlib import sha256

import msgspec

from agiledart_dataflow.data.carries import STATELESS, Carries
from agiledart_dataflow.plan.connectors import ConnectorSpecification

FORMAT = 1
"""Version of this form; a node refuses one that it does not know."""

Options = tuple[tuple[str, str], ...]


class StepSpecification(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One step of the graph.

    Attributes:
        index: its place in `Specification.steps`; inputs always come before.
        name: unique in the topology.
        kind: source, map, filter, flat_map, union, window, stateful, top or sink.
        inputs: indices of the steps whose rows it takes.
        keyed: True when rows reach it by key.
        row_type: structural text of the type of the rows that it puts out (a sink: that it takes).
        key_type: structural text of the key's type, "" when not keyed.
        options: what else defines it, as (name, text) in order of name.
        connector: of a source or a sink.
        at: the node to which it is pinned, or "".
        needs: what it must know of each row that enters it.
        minds_time: it does something when time passes without rows.
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
    minds_time: bool = True

    @property
    def is_stateless(self) -> bool:
        """True for a step that treats each row by itself."""
        return self.kind in STATELESS

    @property
    def is_single(self) -> bool:
        """True for a step that runs once, whatever parallelism is asked for."""
        return self.kind in ("source", "sink", "top")


class Specification(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A whole topology as data."""

    name: str
    steps: tuple[StepSpecification, ...]
    format: int = FORMAT

    def digest(self) -> bytes:
        """SHA-256 over the canonical MessagePack form."""
        return sha256(msgspec.msgpack.encode(self)).digest()

    def consumers(self, index: int) -> tuple[StepSpecification, ...]:
        """The steps that take rows from a step, one entry for each edge."""
        return tuple(step for step in self.steps for source in step.inputs if source == index)

    def of_kind(self, kind: str) -> tuple[StepSpecification, ...]:
        """All steps of a kind, in order."""
        return tuple(step for step in self.steps if step.kind == kind)
