"""The states of an application, as its record on the ring shows them.

    deploying ──► running ──► finished
        │            │
        └────────────┴──────► failed, stopped

The scheduler moves it to `running`, the coordinator to `finished` and `stopped`, any node of the deployment to `failed`. The last
three are final: a later writer finds the record closed. Two awkward cases. First, two nodes detect a failure at once and both
write: one compare-and-set wins, and the other node reads a closed record, as it wanted. Second, a node that hosts nothing of the
application receives nothing from a host, which may be dead or on the other side of a partition. Its write is marked
(`is_unverified`), and the hosts either revoke it or confirm the end.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from agiledart_dataflow.plan.delivery import Delivery
from agiledart_dataflow.plan.deployment import InstancePlace
from agiledart_dataflow.plan.specification import Specification
from agiledart_kernel.codec import Codec
from agiledart_kernel.limits import MAX_RECORD_BYTES, MAX_STAGES
from agiledart_kernel.name_patterns import ApplicationName
from agiledart_kernel.node_id import NodeId, key_of_name
from agiledart_kernel.peer import Peer
from agiledart_kernel.signed_commands import MAX_SIGNED_COMMAND_BYTES
from agiledart_node.context.display_names import display_names
from agiledart_node.records.data_paths import data_paths_of
from agiledart_node.wire.change_responses import ChangeRow
from agiledart_node.wire.commands import WAITING_FOR_CAPACITY

SPECIFICATION_CODEC: Codec[Specification] = Codec(Specification, limit=MAX_RECORD_BYTES // 2)
"""Codec of an application's topology in its record."""

DEPLOYING, RUNNING, FINISHED, FAILED, STOPPED = "deploying", "running", "finished", "failed", "stopped"

RECOVERING = "recovering"
"""State shown instead of `running` while lost state is restored; never in a record."""

MINORITY = "minority"
"""State shown on a side of a partition that works on without the majority of the voters; also a phase of recovery."""

FINAL = (FINISHED, FAILED, STOPPED)

NEXT_STATES: dict[str, tuple[str, ...]] = {
    DEPLOYING: (RUNNING, FAILED, STOPPED),
    RUNNING: (FINISHED, FAILED, STOPPED),
    FINISHED: (),
    FAILED: (),
    STOPPED: (),
}

MAX_CHANGES = 64
"""Changes of stages that the record of an ended application keeps."""

MAX_CHANGES_BYTES = 16 << 10
"""Size limit of those changes, newest first: a record is copied to the whole leaf set."""

MAX_CHANGE_TEXT = 120
"""Characters of a reason that a record keeps of a change."""

MAX_HISTORY = 32
"""Entries of a record's history; the oldest except the first are dropped."""

MAX_SIGNED_ENTRIES = 48
"""Signed commands that a record keeps besides the one with which it was submitted."""

MAX_RIVALS = 8
"""Other runs of its name that a record lists."""

KEPT_MS = 30 * 86_400_000
"""Age of ended applications after which they are forgotten."""

MAX_REASON = 4_096
"""Characters of a reason that a record keeps."""

CATALOGUE_PAGES = 16
"""Records over which the catalogue of names is spread, so that many simultaneous submissions do not wait for one record."""

MAX_NAMES = 1_024
"""Names on one page of the catalogue; a submission beyond is refused."""


class StageEntry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One stage, for people: its name, number of instances and kind (`source`, `sink` or `stage`)."""

    name: str
    parallelism: int
    kind: str = "stage"


class HistoryEntry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A change of state: its time (wall milliseconds of the writer, 0: unknown), the new state, the reason."""

    at_ms: int
    state: str
    text: str


class Rival(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Another run of the same name: submitted on the other side of a partition, or considered dead when this one was submitted.

    Args:
        number: the run's; see `application_number`.
        at_ms: time at which it entered its state.
    """

    number: int
    version: int
    state: str
    reason: str
    submitted_to: str
    at_ms: int = 0
    is_unverified: bool = False


class Loss(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Lost rows of a source: only the log of a lost node had them when the source moved, in this attempt. A lower limit."""

    attempt: int
    source: str
    rows: int


class ApplicationRecord(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Everything about one submission that survives the agent that accepted it.

    Args:
        ticket: random number of the submission; distinguishes two simultaneous submissions of a name.
        reason: why it is in its final state, or why it does not run yet; for people.
        submitted_to: name of the agent that accepted the submission.
        stopping: a user requested a drain; it ends as `stopped` instead of `finished`.
        guards: nodes that watch it without hosting it.
        paths: recorded JOIN paths, source first, sink last.
        summary: totals at the end; plain data.
        by_epoch: it is saved by epochs: its register, not the ring, decides whether it lives. `duplicates`, `saves_less`: as
            in `Delivery`.
        losses: rows lost because a source moved without its log.
        away: of each stage, why its instances are not on the node of its path; for people. Empty before it runs.
        is_forgotten: users do not see it any more; only its version is used.
        owner_key: the key that submitted it; `shared_keys`: keys with which its owner shared it.
        signed_command: the command that submitted this version, signed by its user.
        is_unverified: nodes that host nothing of it report it as `failed`; no host has confirmed that.
        revivals: number of such reports that were revoked.
        rivals: other runs of its name that live, or whose end was unknown when this one was submitted.
        changes: changes of its stages, the last of them, oldest first, as rows of `explain scaling`; recorded at its end.
        signed_entries: signed commands that prove its owner, its shares and its end; see `records.signed_entries`.
        placed_by_user: stages that a user has moved; they move by themselves no more.
        held: stages with limits that keep their number: at first all, later each to which a user gave a fixed number.
    """

    name: ApplicationName
    version: int
    number: int
    ticket: int
    state: str
    scheduler: Peer
    reason: str = ""
    submitter: str = ""
    submitted_to: str = ""
    submitted_ms: int = 0
    changed_ms: int = 0
    stopping: bool = False
    coordinator: Peer | None = None
    nodes: tuple[Peer, ...] = ()
    guards: tuple[Peer, ...] = ()
    stages: tuple[StageEntry, ...] = ()
    edges: tuple[tuple[int, int], ...] = ()
    assignment: tuple[InstancePlace, ...] = ()
    paths: tuple[tuple[Peer, ...], ...] = ()
    specification: bytes = b""
    plan: bytes = b""
    attempt: int = 1
    seconds_to_running: float = 0.0
    history: tuple[HistoryEntry, ...] = ()
    summary: dict[str, Any] = {}
    by_epoch: bool = False
    owner_key: Annotated[bytes, msgspec.Meta(max_length=32)] = b""
    shared_keys: tuple[Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)], ...] = ()
    away: tuple[str, ...] = ()
    is_forgotten: bool = False
    signed_command: Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNED_COMMAND_BYTES)] = b""
    is_unverified: bool = False
    revivals: int = 0
    rivals: Annotated[tuple[Rival, ...], msgspec.Meta(max_length=MAX_RIVALS)] = ()
    held: Annotated[
        tuple[Annotated[str, msgspec.Meta(max_length=4_096)], ...], msgspec.Meta(max_length=MAX_STAGES)
    ] = ()
    changes: Annotated[tuple[dict[str, Any], ...], msgspec.Meta(max_length=MAX_CHANGES)] = ()
    signed_entries: Annotated[
        tuple[Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNED_COMMAND_BYTES)], ...],
        msgspec.Meta(max_length=MAX_SIGNED_ENTRIES),
    ] = ()
    duplicates: bool = False
    losses: Annotated[tuple[Loss, ...], msgspec.Meta(max_length=256)] = ()
    saves_less: bool = False
    placed_by_user: Annotated[
        tuple[Annotated[str, msgspec.Meta(max_length=4_096)], ...], msgspec.Meta(max_length=MAX_STAGES)
    ] = ()

    @property
    def delivery(self) -> Delivery:
        """Guarantee for it and its rows when a host dies."""
        return Delivery.of(is_saved=self.by_epoch, duplicates=self.duplicates, saves_less=self.saves_less)

    @property
    def owner(self) -> str:
        """The owner's key, hex."""
        return self.owner_key.hex()

    @property
    def shared(self) -> list[str]:
        """Keys with which it is shared, hex."""
        return [key.hex() for key in self.shared_keys]

    @property
    def is_final(self) -> bool:
        """Return whether it has ended, as far as this record knows (`is_unverified`)."""
        return self.state in FINAL

    @property
    def is_stopping(self) -> bool:
        """Return whether a user requested its end and it has not ended yet."""
        return self.stopping and not self.is_final

    @property
    def running_ms(self) -> int:
        """Time at which it started to run, wall milliseconds; 0 when it never ran."""
        return next((entry.at_ms for entry in self.history if entry.state == RUNNING), 0)

    def names(self) -> dict[NodeId, str]:
        """Return names for people of all its nodes, including those that are only on its paths."""
        return display_names((*self.nodes, *(peer for path in self.paths for peer in path)))

    def hosts(self) -> tuple[Peer, ...]:
        """Return the nodes that run at least one instance."""
        used = {place.node for place in self.assignment}
        return tuple(node for position, node in enumerate(self.nodes) if position in used)

    def instances_on(self, node: NodeId) -> tuple[tuple[int, int], ...]:
        """Return (stage, index) of the instances on a node, sorted."""
        return tuple(
            sorted((place.stage, place.index) for place in self.assignment if self.nodes[place.node].node == node)
        )

    @property
    def reasons(self) -> dict[str, str]:
        """Stage → why it is not on the node of its path; only such stages."""
        return {stage.name: why for stage, why in zip(self.stages, self.away, strict=False) if why}

    @property
    def data_paths(self) -> list[list[str]]:
        """The paths that rows take; see `data_paths_of`."""
        placement = self.placement
        hosts = [placement[stage.name] for stage in self.stages]
        return data_paths_of([stage.kind for stage in self.stages], self.edges, hosts) if self.assignment else []

    @property
    def stage_edges(self) -> list[tuple[str, str]]:
        """Return the edges of the plan as names of stages; parallel edges of two stages stand once."""
        named = [(self.stages[source].name, self.stages[target].name) for source, target in self.edges]
        return list(dict.fromkeys(named))

    @property
    def placement(self) -> dict[str, list[str]]:
        """Stage → names of its nodes in the order of its instances; ids where names collide or are empty."""
        names_by_id = display_names(self.nodes)
        table: dict[str, list[str]] = {stage.name: [] for stage in self.stages}
        for place in sorted(self.assignment, key=lambda place: (place.stage, place.index)):
            table[self.stages[place.stage].name].append(names_by_id[self.nodes[place.node].node])
        return table

    def is_consistent(self) -> bool:
        """Return whether all positions in it are valid; a record from the ring is checked before use."""
        return (
            self.state in NEXT_STATES
            and (self.state == FAILED or not self.is_unverified)
            and all(
                0 <= place.node < len(self.nodes) and 0 <= place.stage < len(self.stages) for place in self.assignment
            )
            and all(0 <= a < len(self.stages) and 0 <= b < len(self.stages) for a, b in self.edges)
        )


RECORD_CODEC: Codec[ApplicationRecord] = Codec(ApplicationRecord, limit=MAX_RECORD_BYTES)
NAMES_CODEC: Codec[tuple[str, ...]] = Codec(tuple[str, ...], limit=MAX_RECORD_BYTES)
PEER_CODEC: Codec[Peer] = Codec(Peer, limit=MAX_RECORD_BYTES)

CATALOGUE_KEYS = tuple(key_of_name("catalogue", f"applications\0{page}") for page in range(CATALOGUE_PAGES))


def catalogue_key(name: str) -> NodeId:
    """Return the key of the catalogue page for this name."""
    return CATALOGUE_KEYS[application_key(name) % CATALOGUE_PAGES]


def application_key(name: str) -> NodeId:
    """Return the key of an application's record."""
    return key_of_name("application", name)


def node_name_key(name: str) -> NodeId:
    """Return the key of the record that maps a node's name to the node."""
    return key_of_name("node", name)


def advanced(
    record: ApplicationRecord, state: str, reason: str, wall_ms: int, *, is_unverified: bool = False
) -> ApplicationRecord | None:
    """Return the record in its next state, or None when it is closed or the transition is not permitted.

    Args:
        is_unverified: the writer hosts nothing of it, and no host confirmed the state. A host's state may follow.
    """
    was_unverified = record.is_unverified and not is_unverified
    if state not in ((RUNNING, *FINAL) if was_unverified else NEXT_STATES[record.state]):
        return None
    reason = reason[:MAX_REASON]
    entry = HistoryEntry(wall_ms, state, reason)
    history = kept_history(record.history, entry)
    is_revived = was_unverified and state == RUNNING
    return msgspec.structs.replace(
        record,
        state=state,
        reason="" if is_revived else reason,
        changed_ms=wall_ms,
        history=history,
        is_unverified=is_unverified,
        revivals=record.revivals + is_revived,
    )


def forgotten(record: ApplicationRecord) -> ApplicationRecord:
    """Return the remainder of an ended application after users removed it."""
    return ApplicationRecord(
        record.name,
        record.version,
        record.number,
        record.ticket,
        record.state,
        record.scheduler,
        changed_ms=record.changed_ms,
        attempt=record.attempt,
        signed_command=record.signed_command,  # so that the command cannot be replayed
        is_forgotten=True,
    )


def is_old(record: ApplicationRecord, wall_ms: int) -> bool:
    """Return whether an application ended so long ago that it is no longer listed."""
    return record.is_final and 0 < record.changed_ms < wall_ms - KEPT_MS


def waiting_for_capacity(record: ApplicationRecord, reason: str, wall_ms: int) -> ApplicationRecord | None:
    """Return the record of an application that cannot be placed now; None when it is not being deployed."""
    if record.state != DEPLOYING:
        return None
    text = f"{WAITING_FOR_CAPACITY}: {reason}"[:MAX_REASON]
    return msgspec.structs.replace(
        record, reason=text, history=kept_history(record.history, HistoryEntry(wall_ms, DEPLOYING, text))
    )


def kept_history(history: tuple[HistoryEntry, ...], entry: HistoryEntry) -> tuple[HistoryEntry, ...]:
    """Return a history with one more entry; when it is full, the oldest except the first is dropped."""
    shortened = history if len(history) < MAX_HISTORY else history[:1] + history[2:]
    return (*shortened, entry)


def kept_changes(rows: Sequence[ChangeRow]) -> tuple[dict[str, Any], ...]:
    """Return the changes that a record keeps, oldest first: the newest that fit, with shortened texts."""
    newest: list[dict[str, Any]] = []
    bytes_left = MAX_CHANGES_BYTES
    for row in reversed(rows[-MAX_CHANGES:]):
        short = msgspec.structs.replace(row, reason=row.reason[:MAX_CHANGE_TEXT], why=row.why[:MAX_CHANGE_TEXT])
        bytes_left -= len(msgspec.msgpack.encode(short))
        if bytes_left < 0:
            break
        newest.append(msgspec.to_builtins(short))
    return tuple(reversed(newest))


def listed(items: list[str]) -> str:
    """Return `a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else "nothing"


def instances_text(record: ApplicationRecord, node: NodeId) -> str:
    """Return the instances of a node as text: `busiest-routes, route_of 2 and 3`; a stage with one instance has no number."""
    by_stage: dict[int, list[str]] = {}
    for stage, index in record.instances_on(node):
        by_stage.setdefault(stage, []).append(str(index))
    parts = [
        record.stages[stage].name + (f" {listed(indices)}" if record.stages[stage].parallelism > 1 else "")
        for stage, indices in by_stage.items()
    ]
    return ", ".join(parts)
