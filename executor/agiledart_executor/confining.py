"""Before users' code is loaded: what of this node it may touch, from the part of the deployment that the agent handed over.

    work/APP/      the application's own on this node: where its relative names lead (`files`), its spools, its state on disk

Its sinks' logs and the elements of its run stay writable, too; every other name below the state directory is closed.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from agiledart_dataflow.plan.deployment import DeploymentPart
from agiledart_dataflow.plan.specification import Specification
from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_executor.elements import OF_EXECUTORS, run_folder
from agiledart_executor.user_code.confinement import Confinement, FileOfConnector
from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.node_id import NodeId
from agiledart_sink_log.layout import log_directory
from agiledart_sink_log.protocol import latency_log_name, user_sink_name_fault

FOLDER: Final = "work"

CHECKED: Final = ".checked"
"""In place of an application's name: code that a dry run tries. No application is called so."""

_PLAN: Codec[StagePlan] = Codec(StagePlan)
_SPECIFICATION: Codec[Specification] = Codec(Specification)


def work_folder(root: Path, application: str) -> Path:
    """What an application has on a node below its state directory `root`."""
    return root / FOLDER / application


def confine_to(part: DeploymentPart, root: Path, home: NodeId, closed: tuple[str, ...], *, has_latencies: bool) -> bool:
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
    specification, plan = _SPECIFICATION.decode(part.specification), _PLAN.decode(part.plan)
    here = {plan.stages[stage].steps[0] for (stage, _), peer in part.places().items() if peer.node == home}
    own = [files, files.parent, *_logs(specification, here, root, part.application if has_latencies else "")]
    if part.by_epoch:
        own += [run_folder(root, part.application, part.version) / kind for kind in OF_EXECUTORS]
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


def confine_check(root: Path, closed: tuple[str, ...]) -> bool:
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


def _logs(specification: Specification, here: set[int], root: Path, with_latencies: str) -> Iterator[Path]:
    """Folders of the logs that sinks of this node write, and of the latencies of this application."""
    for number, sink in enumerate(specification.sinks):
        if sink.index not in here:
            continue
        if with_latencies:
            yield log_directory(root, latency_log_name(with_latencies, number))
        connector = sink.connector
        if connector is not None and connector.kind == "log" and not user_sink_name_fault(connector.path):
            yield log_directory(root, connector.path)
