"""Before users' code is loaded: what of this node it may touch, from the part of the deployment that the agent handed over.

    work/APP/      the application's own on this node: where its relative names lead (`files`), its spools, its state on disk

Its sinks' logs and the elements of its run stay writable, too; every other name below the state directory is closed.
"""

import os
from pathlib import Path
from typing import Final

from agiledart_dataflow.plan.deployment import DeploymentPart
from agiledart_dataflow.plan.specification import Specification
from agiledart_executor.snapshots.snapshot_file import EXECUTOR_FOLDERS, run_folder
from agiledart_executor.user_code.application_folders import logs_here, steps_here, work_folder
from agiledart_executor.user_code.confinement import Confinement, FileOfConnector
from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.node_id import NodeId
from agiledart_sink_log.layout import log_directory

CHECKED: Final = ".checked"
"""In place of an application's name: code that a dry run tries. No application is called so."""

_SPECIFICATION: Codec[Specification] = Codec(Specification)


def confine_application(
    part: DeploymentPart, root: Path, home: NodeId, closed: tuple[str, ...], *, has_latencies: bool
) -> bool:
    """Close everything else of the agent's to this process; False: nothing is to be closed, or the kernel cannot.

    The process's folder and its `TMPDIR` are the application's own from now on.

    Args:
        root: the state directory.
        home: the agent's node; only what runs there is this process's business.
        has_latencies: sinks keep the latencies that are sampled at them.

    Raises:
        OperationFailed: a source or sink names what is closed; or the disk does not take a folder.
    """
    if not closed:
        return False
    files = work_folder(root, part.application) / "files"
    specification = _SPECIFICATION.decode(part.specification)
    here = steps_here(part, home)
    logs = logs_here(part, home)
    names = (*logs.of_users, *(logs.of_latencies if has_latencies else ()))
    own = [files, files.parent, *(log_directory(root, name) for name in names)]
    if part.by_epoch:
        own += [run_folder(root, part.application, part.version) / kind for kind in EXECUTOR_FOLDERS]
    try:
        confinement = Confinement([Path(path) for path in closed], own)
        os.chdir(files)
    except OSError as error:
        raise OperationFailed(f"{files} cannot be made: {(error.strerror or str(error)).lower()}") from None
    sinks = {sink.index for sink in specification.sinks}
    confinement.check(
        FileOfConnector(step.name, step.connector.connector(), step.index in sinks)
        for step in specification.steps
        if step.connector is not None and step.index in here
    )
    return confinement.enforce()


def confine_file_finaliser(root: Path, application: str, closed: tuple[str, ...]) -> bool:
    """The same for who finishes an application's files: of the state directory it has the application's own folder.

    Raises:
        OperationFailed: the disk does not take a folder.
    """
    if not closed:
        return False
    folder = work_folder(root, application)
    try:
        return Confinement([Path(path) for path in closed], [folder]).enforce()
    except OSError as error:
        raise OperationFailed(f"{folder} cannot be made: {(error.strerror or str(error)).lower()}") from None


def confine_code_check(root: Path, closed: tuple[str, ...]) -> bool:
    """The same for code that is only tried: of the state directory it has an empty folder and no log.

    Raises:
        OperationFailed: the disk does not take a folder.
    """
    if not closed:
        return False
    files = work_folder(root, CHECKED)
    try:
        confinement = Confinement([Path(path) for path in closed], [files])
        os.chdir(files)
    except OSError as error:
        raise OperationFailed(f"{files} cannot be made: {(error.strerror or str(error)).lower()}") from None
    return confinement.enforce()
