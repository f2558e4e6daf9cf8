"""Confinement of user code before it is loaded: which files of this node it may use, by the agent's deployment part.

    models/APP/    models that it names by their hash, which only the agent writes
    work/APP/      the application's own folder on this node: its relative file names (`files`), its spools, its state on disk

Its sinks' logs and the snapshots of its run stay writable, too. Every other name below the state directory is closed.
"""

import os
from pathlib import Path
from typing import Final

from agiledart_dataflow.plan.deployment import DeploymentPart
from agiledart_dataflow.plan.specification import Specification
from agiledart_executor.user_code.application_folders import FOLDER, models_folder, own_folders, steps_here, work_folder
from agiledart_executor.user_code.confinement import Confinement, FileOfConnector
from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.node_id import NodeId

CHECKED: Final = ".checked"
"""Folder name for code that a dry run checks, instead of an application's name; no application can have this name."""

_SPECIFICATION: Codec[Specification] = Codec(Specification)


def confine_application(
    part: DeploymentPart, root: Path, home: NodeId, closed: tuple[str, ...], *, has_latencies: bool
) -> bool:
    """Close the agent's files to this process, except those that the application needs.

    From now on, the working directory and `TMPDIR` are folders of the application.

    Args:
        part: deployment part.
        root: the state directory.
        home: the agent's node; only the instances there run in this process.
        closed: files and folders to close; empty for no confinement.
        has_latencies: sinks keep sampled latencies.

    Returns:
        False when there is nothing to close, or the kernel cannot confine a process.

    Raises:
        OperationFailed: a source or sink names a closed file, or a folder cannot be made.
    """
    if not closed:
        return False
    own = own_folders(part, root, home, has_latencies=has_latencies)
    files = own[0]
    specification = _SPECIFICATION.decode(part.specification)
    local_steps = steps_here(part, home)
    try:
        confinement = Confinement([Path(path) for path in closed], own, readable=_models(part, root, specification))
        os.chdir(files)
    except OSError as error:
        raise OperationFailed(f"{files} cannot be made: {(error.strerror or str(error)).lower()}") from None
    sinks = {sink.index for sink in specification.sinks}
    confinement.check(
        FileOfConnector(step.name, step.connector.connector(), step.index in sinks)
        for step in specification.steps
        if step.connector is not None and step.index in local_steps
    )
    return confinement.enforce()


def _models(part: DeploymentPart, root: Path, specification: Specification) -> list[Path]:
    """Return the folder of the application's models when it has a step that may score."""
    shares = any(step.traits.shares_second for step in specification.steps)
    return [models_folder(root, part.application)] if shares else []


def confine_file_finaliser(root: Path, application: str, closed: tuple[str, ...]) -> bool:
    """Confine the process that finalises an application's files to the application's own folder in the state directory.

    Raises:
        OperationFailed: a folder cannot be made.
    """
    if not closed:
        return False
    folder = work_folder(root, application)
    try:
        return Confinement([Path(path) for path in closed], [folder]).enforce()
    except OSError as error:
        raise OperationFailed(f"{folder} cannot be made: {(error.strerror or str(error)).lower()}") from None


def confine_code_check(root: Path, closed: tuple[str, ...]) -> bool:
    """Confine a code check to an empty folder in the state directory, without any log.

    Raises:
        OperationFailed: a folder cannot be made.
    """
    if not closed:
        return False
    files = root / FOLDER / CHECKED
    try:
        confinement = Confinement([Path(path) for path in closed], [files])
        os.chdir(files)
    except OSError as error:
        raise OperationFailed(f"{files} cannot be made: {(error.strerror or str(error)).lower()}") from None
    return confinement.enforce()
