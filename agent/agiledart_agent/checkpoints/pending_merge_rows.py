"""Rows of a checkpoint that wait in channels and merges: they have a place in the checkpoint's own topology only."""

from pathlib import Path

import msgspec

from agiledart_agent.checkpoints.checkpoint_file import CheckpointManifest, InvalidCheckpointFile
from agiledart_dataflow.state.restoring_from_run import rows_waiting
from agiledart_executor.snapshots.snapshot_file import DamagedSnapshot, parse_snapshot
from agiledart_kernel.errors import OperationFailed


def pending_merge_rows(path: Path, manifest: CheckpointManifest) -> dict[int, int]:
    """Return stage → rows that wait at its instances. Raises `InvalidCheckpointFile`, OSError."""
    last = {(snapshot.stage, snapshot.generation, snapshot.index): snapshot for snapshot in manifest.snapshots}
    rows_by_stage: dict[int, int] = {}
    with path.open("rb") as file:
        for snapshot in last.values():
            file.seek(snapshot.offset)
            try:
                _, blocks = parse_snapshot(file.read(snapshot.length), f"the snapshot of stage {snapshot.stage}")
                rows_by_stage[snapshot.stage] = rows_by_stage.get(snapshot.stage, 0) + rows_waiting(blocks[0])
            except (DamagedSnapshot, OperationFailed, msgspec.MsgspecError, IndexError, ValueError) as error:
                raise InvalidCheckpointFile(
                    f"{path}: the snapshot of stage {snapshot.stage} cannot be read ({error})"
                ) from None
    return rows_by_stage
