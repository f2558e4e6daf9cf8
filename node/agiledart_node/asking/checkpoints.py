"""`checkpoint`: what is safe of an application that is saved by epochs; and an epoch now, when somebody does not want to wait."""

from typing import Final

import msgspec

from agiledart_dataflow.plan.delivery import SAVING
from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_kernel.instants import SECOND, Duration
from agiledart_kernel.permissions import Asker
from agiledart_node.asking.kept_checkpoints import KeptCheckpoints
from agiledart_node.asking.questions import Questions, row_of, with_standing
from agiledart_node.desk.desk import CommandRefused, Desk, NotAllowed
from agiledart_node.records.application import RUNNING, ApplicationRecord
from agiledart_node.wire.bodies import CheckpointsBody
from agiledart_node.wire.checkpoint_bodies import ElementRow
from agiledart_node.wire.commands import Checkpoints
from agiledart_node.wire.recovery_messages import RecoveryIs

LOOK_NS: Final = Duration(SECOND // 2)
LOOKS: Final = 150
"""So often somebody looks whether the epoch is committed: a little longer than an epoch may take."""


async def checkpoints(
    desk: Desk, questions: Questions, keeping: KeptCheckpoints, request: int, command: Checkpoints, asker: Asker
) -> None:
    """Answer `checkpoint list` or `checkpoint take`. Raises CommandRefused."""
    if not command.take and await _of_what_is_kept(desk, questions, keeping, request, command, asker):
        return
    record = await questions.record(command.name, asker, "checkpoint")
    if not record.by_epoch:
        raise CommandRefused(
            f"{record.name} is not saved by epochs: nothing of it survives its hosts. Submit it with {SAVING}."
        )
    if record.state != RUNNING:
        raise CommandRefused(
            f"{record.name} is {record.state}: its rows are committed, and nothing else is kept of it."
        )
    told = await _told(questions, record, begin=False)
    if command.take:
        told = await _taken(desk, questions, record, told)
    kept = keeping.allowed(await keeping.kept(application=record.name), asker, "checkpoint")
    rows = await keeping.rows(kept)
    desk.reply(request, msgspec.structs.replace(_body(record, told), kept=rows))


async def _of_what_is_kept(
    desk: Desk, questions: Questions, keeping: KeptCheckpoints, request: int, command: Checkpoints, asker: Asker
) -> bool:
    """Answer with checkpoints that are kept, where the name is one's, or no run of it goes on. False: there are none such that who
    asks may see, and there is a record of that name."""
    about = [each for each in await keeping.kept() if command.name in (each[0].name, each[0].run.app)]
    if not about:
        return False
    mine = keeping.allowed(about, asker, "checkpoint")
    named = [each for each in mine if each[0].name == command.name]
    try:
        record = None if named else await questions.record(command.name, asker, "checkpoint")
    except CommandRefused as refusal:  # it is forgotten, or another's; and what is kept of it is not
        if not mine and isinstance(refusal, NotAllowed):
            raise
        record = None
    if record is not None and (record.state == RUNNING or not mine):
        return False
    if not mine:
        keeping.check(asker, "checkpoint", about[0][0])
    shown = named or mine
    version, state = (record.version, record.state) if record is not None else (shown[0][0].run.version, "kept")
    desk.reply(request, CheckpointsBody(command.name, version, state, None, None, [], await keeping.rows(shown)))
    return True


async def _told(questions: Questions, record: ApplicationRecord, *, begin: bool) -> RecoveryIs | None:
    return (await questions.standings([record], elements=True, begin=begin)).get(record.name)


async def _taken(desk: Desk, questions: Questions, record: ApplicationRecord, told: RecoveryIs | None) -> RecoveryIs:
    """Wait for an epoch that began after the question."""
    before = _committed(told)
    begin = True
    for _ in range(LOOKS):
        told = await _told(questions, record, begin=begin)
        begin = before < 0 or told is None  # nobody took that yet
        if told is not None and before < 0:
            before = _committed(told)
        elif told is not None and _committed(told) > before:
            return told
        await desk.talks.pause(LOOK_NS)
    recovery = told.recovery if told is not None else {}
    doing = f": it is recovering ({recovery.get('phase')}: {recovery.get('reason')})" if recovery else ""
    waits = ", ".join(recovery.get("waits_for", ()))
    raise CommandRefused(
        f"No epoch of {record.name} was committed within {LOOKS * LOOK_NS // SECOND} s{doing}"
        f"{f'; it waits for {waits}' if waits else ''}. Look at agiledart status {record.name}."
    )


def _committed(told: RecoveryIs | None) -> int:
    return int(told.epoch.get("committed", -1)) if told is not None else -1


def _body(record: ApplicationRecord, told: RecoveryIs | None) -> CheckpointsBody:
    row = with_standing(row_of(record), told)
    names = {str(stage.index): stage.name for stage in msgspec.msgpack.decode(record.plan, type=StagePlan).stages}
    elements: list[ElementRow] = []
    for plain in told.elements if told is not None else ():
        try:
            element = msgspec.convert(plain, ElementRow)
        except msgspec.ValidationError:
            continue  # of a node with another version
        elements.append(msgspec.structs.replace(element, stage=names.get(element.stage, element.stage)))
    return CheckpointsBody(record.name, record.version, row.state, row.recovery, row.epoch, elements)
