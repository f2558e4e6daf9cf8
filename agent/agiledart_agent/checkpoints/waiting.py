"""Rows that wait in a checkpoint to be merged: they have their place in its own topology only."""

from pathlib import Path

import msgspec

from agiledart_agent.checkpoints.archive import BadCheckpoint, Manifest
from agiledart_dataflow.state.inheriting import rows_waiting
from agiledart_executor.elements import DamagedElement, element_in
from agiledart_kernel.errors import OperationFailed


def waiting_in(path: Path, manifest: Manifest) -> dict[int, int]:
    """Stage → rows that wait at its instances. Raises BadCheckpoint, OSError."""
    last = {(one.stage, one.term, one.index): one for one in manifest.elements if one.role != "source"}
    found: dict[int, int] = {}
    with path.open("rb") as file:
        for one in last.values():
            file.seek(one.offset)
            try:
                _, blocks = element_in(file.read(one.length), f"what stage {one.stage} saved")
                found[one.stage] = found.get(one.stage, 0) + rows_waiting(blocks[0])
            except (DamagedElement, OperationFailed, msgspec.MsgspecError, IndexError, ValueError) as error:
                raise BadCheckpoint(f"{path}: what stage {one.stage} saved cannot be read ({error})") from None
    return found
