"""Part of an application that one node runs, with the places of all other parts.

A deployment goes out in waves, from the sinks to the sources. A node gets a part once the data addresses of everything
downstream of that part are known, so that no instance starts before its receivers listen. A node that hosts several stages
may get several parts of the same application. Source: [AgileDART] §IV-A (plan sent back along the paths in reverse), spec of
the dataflow graph, section 3 step 5.
"""

from typing import Annotated

import msgspec

from agiledart_dataflow.plan.delivery import Delivery
from agiledart_kernel.name_patterns import ApplicationName
from agiledart_kernel.peer import Peer
from agiledart_kernel.signed_commands import MAX_SIGNED_COMMAND_BYTES

_SignedEntry = Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNED_COMMAND_BYTES)]


class PlacedInstance(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One parallel copy of a stage that runs here.

    Args:
        stage, index: stage of the plan, and number of the copy.
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
    """Place of one parallel copy of a stage; `node` is a position in `DeploymentPart.nodes`."""

    stage: int
    index: int
    node: int


class InstanceAddress(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Address at which one parallel copy takes its data frames: `host:port`."""

    stage: int
    index: int
    address: str


class SnapshotChain(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Snapshot with which one instance continues, by the hash of its file.

    `before`: the snapshots that it rests on, a whole one first.
    """

    stage: int
    index: int
    digest: bytes
    before: tuple[bytes, ...] = ()


class RestoreFrom(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Checkpoint with which instances continue: a committed epoch; 0: the beginning.

    Args:
        epoch: number of the checkpoint.
        snapshots: those of all instances that had state to save.
        origin: the run begins with a checkpoint of another run, of its `whole` topology or of some of its `steps`; empty: it does
            not.
        emitted_rows: snapshots of sinks that tell up to which row theirs are committed, where `snapshots` are of an earlier epoch.
    """

    epoch: int
    snapshots: tuple[SnapshotChain, ...] = ()
    origin: str = ""
    emitted_rows: tuple[SnapshotChain, ...] = ()


REGISTER_BYTES, REGISTER_BYTES_EACH = 64 << 10, 2_048
"""Bytes of snapshots that a run's register may hold, of all its instances and of each."""

WHOLE, STEPS = "whole", "steps"
"""Part of a checkpoint that a new run begins with: all of it, or the state of steps by their names."""

DOES_NOT_FIT = "cannot begin with what the checkpoint holds of it"
"""Part of the reason why an instance was not started; another attempt would not help."""


class DeploymentPart(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Instances of one application that one node starts, with all that it needs to know of the rest.

    Args:
        application, version: its name, and the number of the submission under that name.
        number: of the run, in data frames, grants and snapshots, see `agiledart_kernel.frames.application_number`.
        attempt: execution of the plan; grows when a running application is placed anew or restarted.
        specification, plan: wire forms of the `Specification` and the `StagePlan`.
        bundle: the user's code; never empty when it reaches a driver.
        nodes: every node of the deployment; other fields refer to nodes by their positions in it.
        instances: those that this node starts now.
        assignment: every instance of the application.
        addresses: of all instances downstream of these ones.
        coordinator: node of the first sink in the order of ids; notified when instances end.
        scheduler: node that planned this deployment.
        executors: executor processes that the application may use on each node, at least 1.
        domain: zone or region whose schedulers serve the application.
        most: operator instances that the receiver may hold with this plan; if it holds more, its load was surveyed too early. 0: no
            more than its capacity.
        by_epoch: the run is saved by epochs, so that it survives the failure of its hosts.
        signed_command: the user's signed command to submit; later actions for the run rest on it.
        owner: the key that the application belongs to, and with it the logs that its sinks begin.
        signed_entries: signed commands that prove the owner's right to the run, where `signed_command` is not the owner's.
        log_owners: (log, key) of logs that stay another key's when this run begins them here; set by this node, never by another
            one.
        goes_on: the run begins with the state of another run, so its sinks append to files that they would otherwise write anew.
        duplicates: sinks emit rows at once and abort none (`Delivery.duplicates`).
        saves_less: the run saves as little as each step allows (`Delivery.saves_less`).
    """

    application: ApplicationName
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
    saves_less: bool = False

    @property
    def delivery(self) -> Delivery:
        """Delivery guarantee that the user requested."""
        return Delivery.of(is_saved=self.by_epoch, duplicates=self.duplicates, saves_less=self.saves_less)

    def places(self) -> dict[tuple[int, int], Peer]:
        """Return (stage, index) → the node that runs it."""
        return {(place.stage, place.index): self.nodes[place.node] for place in self.assignment}

    def known_addresses(self) -> dict[tuple[int, int], str]:
        """Return (stage, index) → `host:port`, as far as known."""
        return {(known.stage, known.index): known.address for known in self.addresses}
