"""Opening of the intake of a source: its queue in memory or on the right disk; none for a source that blocks."""

import stat
from pathlib import Path
from typing import Any

from agiledart_dataflow.plan.connectors import Connector
from agiledart_dataflow.plan.overload import SPOOL, Overload
from agiledart_dataflow.plan.step import Step
from agiledart_dataflow.runtime.intake import Intake
from agiledart_kernel.errors import ConfigurationError, OperationFailed


def open_intake(step: Step, directory: Path, row_type: Any = None) -> Intake | None:
    """Open the intake that a source's overload policy requires; None for the policy that blocks.

    Args:
        step: the source.
        directory: for a spool; created when it is missing.
        row_type: type of the rows that wait; None: that of the step's own rows.

    Raises:
        ConfigurationError: rows of a file would be shed although a file can wait.
        OperationFailed: the directory cannot be made.
    """
    overload = step.source.overload if step.source is not None else Overload()
    if overload.blocks:
        return None
    assert step.connector is not None
    row_type = step.row_type if row_type is None else row_type
    if overload.policy != SPOOL:
        _refuse_shedding_a_file(step.connector, overload)
        return Intake(step.name, row_type, overload)
    from agiledart_executor.spool.spool_log import (
        SpoolLog,
    )  # tempfile and its imports cost a megabyte, so only sources that spool import them

    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OperationFailed(f"the spool's directory {directory} cannot be made: {reason}") from None
    return Intake(step.name, row_type, overload, SpoolLog(directory, overload.spool_bytes))


def _refuse_shedding_a_file(connector: Connector, overload: Overload) -> None:
    """Raise ConfigurationError for a file that would be read at full speed and so lose nearly all of its rows, for no reason."""
    if connector.kind != "csv" or connector.option("speed") or connector.path in ("", "-"):
        return
    try:
        is_file = stat.S_ISREG(Path(connector.path).stat().st_mode)
    except OSError:
        return  # the reader gives the better message
    if is_file:
        raise ConfigurationError(
            f"{connector.url()}: a file can wait, so none of its rows needs to be shed: leave out overload={overload.policy},"
            " or set the rate of the file with speed=…"
        )
