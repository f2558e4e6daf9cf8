"""Sink logs of an ended run: rows that its sinks still have to commit, when no process of the run is left to do it.

The snapshot of a sink, which the run's register names, says up to where each part of its log is committed.
"""

from pathlib import Path
from typing import Final

import msgspec

from agiledart_connectors.sink_origin import CommittedOutput
from agiledart_executor.snapshots.snapshot_file import DamagedSnapshot, read_snapshot, run_folder
from agiledart_kernel.errors import OperationFailed
from agiledart_node.wire.effects import CommitLogs, ForgetRun
from agiledart_sink_log.late_commit import commit_late

MAX_SINK_SNAPSHOT_BYTES: Final = 64 << 20
"""Longest snapshot of a sink that the agent takes into memory."""

_ENDS: msgspec.msgpack.Decoder[tuple[int, ...]] = msgspec.msgpack.Decoder(tuple[int, ...])


def commit_ended_logs(state_dir: Path, effect: CommitLogs | ForgetRun) -> list[str]:
    """Commit the rows of the last epoch in the sinks' logs, and no others. Return errors of snapshots that no retry mends.

    Raises:
        OperationFailed: a log is still being written, or its disk does not take it: to be tried again.
    """
    outputs, errors = committed_in(state_dir, effect)
    reason = effect.why if isinstance(effect, ForgetRun) else ""
    for output in outputs:
        if output.identity:
            commit_late(state_dir, output.identity, effect.application, effect.version, output.ends, reason)
    return errors


def committed_in(state_dir: Path, effect: CommitLogs | ForgetRun) -> tuple[list[CommittedOutput], list[str]]:
    """Return (output that the snapshots prove to be committed, errors of snapshots)."""
    outputs: list[CommittedOutput] = []
    errors: list[str] = []
    folder = run_folder(state_dir, effect.application, effect.version)
    for digest in effect.digests:
        try:
            _, blocks = read_snapshot(folder, digest, MAX_SINK_SNAPSHOT_BYTES)
            if len(blocks) > 2:
                outputs.append(CommittedOutput(_ENDS.decode(blocks[1]), blocks[2].decode()))
        except (DamagedSnapshot, OperationFailed, msgspec.MsgspecError, UnicodeDecodeError) as error:
            errors.append(f"rows of the last epoch of {effect.application} may not be visible: {error}")
    return outputs, errors
