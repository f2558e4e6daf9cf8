"""What one node is told to run of an application, and where everything else of it runs.

A deployment goes out in waves, from the sinks to the sources: a node gets a part once the data addresses of
everything downstream
of that part are known, so that no instance starts before what it sends to can listen. A node that hosts several
stages may get
several parts of the same application. Source: [AgileDART] §IV-A (plan sent back along the paths in reverse), spec
of the dataflow graph, section 3 step 5.
"""

from typing import Annotated

import msgspec

from agiledart_dataflow.plan.delivery import Delivery
from agiledart_kernel.peer import Peer
from agiledart_kernel.signed_commands import MAX_SIGNED_COMMAND_BYTES

_SignedEntry = Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNED_COMMAND_BYTES)]


class PlacedInstance(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One parallel copy of a stage that runs here.

    Args:
        stage, index: which copy of which stage of the plan.
        executor: slot of the executor process that runs it, `0 … executors - 1`.
    """

    stage: int
    index: int
    executor: int = 0

    @property
    def copy(self) -> tuple[int, int]:
        """(stage, index)."""
        return self.stage, self.index


class InstancePlace(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Where one parallel copy of a stage runs; `node` is a position in `DeploymentPart.nodes`."""

    stage: int
    index: int
    node: int


class InstanceAddress(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Where one parallel copy takes its data frames: `host:port`."""

    stage: int
    index: int
    address: str


class SnapshotChain(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The element with which one instance goes on, by the hash of its file; `before`: those that it rests on, a whole one first."""

    stage: int
    index: int
    digest: bytes
    before: tuple[bytes, ...] = ()


class RestoreFrom(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Where instances go on: a committed epoch; 0: the beginning. `elements`: of those that had anything to save.

    Args:
        origin: the beginning is a checkpoint of another run, of the `whole` topology or of some of its `steps`; empty: it is none.
        shown: elements of sinks that say up to where their rows count, where `elements` are of an earlier epoch than that.
    """

    epoch: int
    snapshots: tuple[SnapshotChain, ...] = ()
    origin: str = ""
    emitted_rows: tuple[SnapshotChain, ...] = ()


WHOLE, STEPS = "whole", "steps"
"""What a run that begins with a checkpoint takes from it: all, or the state of steps by their names."""

DOES_NOT_FIT = "cannot begin with what the checkpoint holds of it"
"""In the reason why an instance was not started: another try would not help."""


class DeploymentPart(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Instances of one application that one node starts, with all that it needs to know of the rest.

    Args:
        application, version: its name, and which submission of that name.
        number: of the run, in data frames, grants and elements, see `agiledart_kernel.frames.application_number`.
        life: execution of the plan; grows when a running application is placed or brought back anew.
        specification, plan: wire forms of the `Specification` and the `StagePlan`.
        bundle: the user's code; never empty when it reaches a driver.
        nodes: every node of the deployment; positions in it stand for nodes elsewhere.
        instances: what this node starts now.
        assignment: every instance of the application.
        addresses: of all instances downstream of these ones.
        coordinator: node of the first sink in the order of ids; told when instances end.
        scheduler: node that planned this.
        executors: executor processes that the application may use on each node, at least 1.
        domain: zone or region whose schedulers serve the application.
        most: operator instances that the receiver may hold with this plan; more means that its load was surveyed too early.
            0: no more than its capacity.
        by_epoch: the run is saved by epochs, so that it survives the death of its hosts.
        order: with which the user submitted it, signed; what is done for it later rests on that.
        owner: the key that the application belongs to, and with it the logs that its sinks begin.
        deeds: where the order is not the owner's: the signed orders which say that the run is its owner's all the same.
        log_owners: (log, key): those that stay another's when this run begins them here; said by this node, never by another one.
        goes_on: it begins with the state of another run, so files that its sinks would write anew go on where they end.
        repeats: sinks show rows at once and take none back (`Delivery.repeats`).
    """

    application: str
    version: int
    number: int
    attempt: int
    specification: bytes
    plan: bytes
    bundle: bytes
    nodes: tuple[Peer, ...]
    instances: tuple[PlacedInstance, ...]
    assignment: tuple[InstancePlace, ...]
    addresses: tuple[InstanceAddress, ...]
    coordinator: Peer
    scheduler: Peer
    executors: int = 1
    domain: str = ""
    most: int = 0
    by_epoch: bool = False
    signed_command: bytes = b""
    owner: bytes = b""
    signed_entries: Annotated[tuple[_SignedEntry, ...], msgspec.Meta(max_length=3)] = ()
    log_owners: tuple[tuple[str, bytes], ...] = ()
    goes_on: bool = False
    duplicates: bool = False

    @property
    def delivery(self) -> Delivery:
        """What was asked for."""
        return Delivery.of(is_saved=self.by_epoch, duplicates=self.duplicates)

    def places(self) -> dict[tuple[int, int], Peer]:
        """(stage, index) → the node that runs it."""
        return {(place.stage, place.index): self.nodes[place.node] for place in self.assignment}

    def known_addresses(self) -> dict[tuple[int, int], str]:
        """(stage, index) → `host:port`, as far as known."""
        return {(known.stage, known.index): known.address for known in self.addresses}
