"""Rows that wait in a checkpoint to be merged: they have their place in its own topology only."""

from pathlib import Path

import msgspec

from agiledart_agent.checkpoints.checkpoint_file import CheckpointManifest, InvalidCheckpointFile
from agiledart_dataflow.state.restoring_from_run import rows_waiting
from agiledart_executor.snapshots.snapshot_file import DamagedSnapshot, parse_snapshot
from agiledart_kernel.errors import OperationFailed


def pending_merge_rows(path: Path, manifest: CheckpointManifest) -> dict[int, int]:
    """Stage → rows that wait at its instances. Raises BadCheckpoint, OSError."""
    last = {(one.stage, one.generation, one.index): one for one in manifest.snapshots if one.role != "source"}
    found: dict[int, int] = {}
    with path.open("rb") as file:
        for one in last.values():
            file.seek(one.offset)
            try:
                _, blocks = parse_snapshot(file.read(one.length), f"what stage {one.stage} saved")
                found[one.stage] = found.get(one.stage, 0) + rows_waiting(blocks[0])
            except (DamagedSnapshot, OperationFailed, msgspec.MsgspecError, IndexError, ValueError) as error:
                raise InvalidCheckpointFile(f"{path}: what stage {one.stage} saved cannot be read ({error})") from None
    return found
