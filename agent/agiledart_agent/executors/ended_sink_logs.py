"""What sinks of a run that has ended have to show, where no process of it is left to show it.

The element of a sink, which the run's register names, says up to where each part of its log counts.
"""

from pathlib import Path

import msgspec

from agiledart_connectors.sink_origin import CommittedOutput
from agiledart_executor.snapshots.snapshot_file import DamagedSnapshot, read_snapshot, run_folder
from agiledart_kernel.errors import OperationFailed
from agiledart_node.wire.effects import CommitLogs, ForgetRun
from agiledart_sink_log.late_commit import commit_late

_ENDS: msgspec.msgpack.Decoder[tuple[int, ...]] = msgspec.msgpack.Decoder(tuple[int, ...])


def commit_ended_logs(state_dir: Path, effect: CommitLogs | ForgetRun) -> list[str]:
    """Let the rows of its last epoch count, and no others; returns what is wrong with elements, which nothing mends.

    Raises:
        OperationFailed: a log is still being written, or its disk does not take it: to be tried again.
    """
    shown, wrong = committed_in(state_dir, effect)
    why = effect.why if isinstance(effect, ForgetRun) else ""
    for one in shown:
        if one.identity:
            commit_late(state_dir, one.identity, effect.application, effect.version, one.ends, why)
    return wrong


def committed_in(state_dir: Path, effect: CommitLogs | ForgetRun) -> tuple[list[CommittedOutput], list[str]]:
    """(what the elements say that sinks have to show, what is wrong with elements)."""
    shown: list[CommittedOutput] = []
    wrong: list[str] = []
    folder = run_folder(state_dir, effect.application, effect.version)
    for digest in effect.digests:
        try:
            _, blocks = read_snapshot(folder, digest)
            if len(blocks) > 2:
                shown.append(CommittedOutput(_ENDS.decode(blocks[1]), blocks[2].decode()))
        except (DamagedSnapshot, OperationFailed, msgspec.MsgspecError, UnicodeDecodeError) as error:
            wrong.append(f"rows of the last epoch of {effect.application} may not be seen: {error}")
    return shown, wrong
