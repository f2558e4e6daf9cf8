"""A source's step → its waiting room, on the right disk; nothing for a source that simply waits."""

import stat
from pathlib import Path

from agiledart_dataflow.plan.connectors import Connector
from agiledart_dataflow.plan.overload import SPOOL, Overload
from agiledart_dataflow.plan.step import Step
from agiledart_dataflow.runtime.intake import Intake
from agiledart_kernel.errors import ConfigurationError, OperationFailed


def open_intake(step: Step, directory: Path) -> Intake | None:
    """The waiting room that a source's policy asks for.

    Args:
        directory: for a spool; it is made if need be.

    Raises:
        ConfigurationError: rows of a file would be let go, although a file can wait.
        OperationFailed: the directory cannot be made.
    """
    overload = step.source.overload if step.source is not None else Overload()
    if overload.blocks:
        return None
    assert step.connector is not None
    if overload.policy != SPOOL:
        _refuse_shedding_a_file(step.connector, overload)
        return Intake(step.name, step.row_type, overload)
    from agiledart_executor.spool.spool_log import (
        SpoolLog,
    )  # tempfile and what it imports cost a megabyte: only who spools pays

    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise OperationFailed(f"the spool's directory {directory} cannot be made: {reason}") from None
    return Intake(step.name, step.row_type, overload, SpoolLog(directory, overload.spool_bytes))


def _refuse_shedding_a_file(connector: Connector, overload: Overload) -> None:
    """A file that is read as fast as it can be would lose nearly all of its rows, for nothing."""
    if connector.kind != "csv" or connector.option("speed") or connector.path in ("", "-"):
        return
    try:
        is_file = stat.S_ISREG(Path(connector.path).stat().st_mode)
    except OSError:
        return  # the reader says it better
    if is_file:
        raise ConfigurationError(
            f"{connector.url()}: a file can wait, so nothing of it need be let go: leave out overload={overload.policy},"
            " or pace the file with speed=…"
        )
