"""`prepared_event`: what the recovery machine gets when a local instance has saved its part of a checkpoint."""

from agiledart_kernel.machine import Event
from agiledart_node.recovery.register_bootstrap import instance_id_of
from agiledart_node.wire.events import InstancePrepared
from agiledart_recovery.attempts.participant import Participant
from agiledart_recovery.limits import SEAL_BYTES
from agiledart_recovery.wire import events
from agiledart_recovery.wire.names import CheckpointId, GenerationPause, RunId
from agiledart_recovery.wire.register_value import InstanceSnapshot, RegisterValue, SavedState


def prepared_event(event: InstancePrepared, part: Participant, value: RegisterValue) -> Event:
    """Return the machine's event.

    A snapshot that may be restored elsewhere is cut into fragments; that of a pinned instance stays on its host, without any.
    The content of a small one goes to the register, and neither to a disk nor into fragments.
    A barrier with a plan that this node does not know breaks the attempt.

    Args:
        event: the report of the instance's executor.
        part: this node's part in the run.
        value: the register's value of the attempt.
    """
    run = RunId(event.application, event.version)
    instance = instance_id_of(event.stage, event.index, event.generation)
    after = part.generation_preparation.plan if event.after else None
    if event.after and (after is None or after.digest != event.after):
        reason = f"{instance} passed a barrier with a plan that this node does not know"
        return events.AttemptBroken(run, part.attempt, reason)
    checkpoint = CheckpointId(part.attempt, event.epoch)
    pauses = tuple(
        GenerationPause(str(stage), generation, pause) for stage, generation, pause in event.changeover_pauses
    )
    if any(assignment.is_pinned for assignment in value.plan.assignments if assignment.instance == instance):
        snapshot = InstanceSnapshot(checkpoint, event.digest, event.size, 1, (), event.content)
        return events.PinnedInstancePrepared(
            run,
            instance,
            checkpoint,
            SavedState(instance, (snapshot,)),
            sum(event.ends),
            after,
            event.caught_up,
            event.ended,
            pauses,
            event.pause_ns,
        )
    return events.SnapshotTaken(
        run,
        instance,
        checkpoint,
        event.digest,
        event.size + (0 if event.content else SEAL_BYTES),
        event.onto,
        after,
        event.caught_up,
        event.ended,
        sum(event.ends),
        pauses,
        event.pause_ns,
        event.content,
    )
