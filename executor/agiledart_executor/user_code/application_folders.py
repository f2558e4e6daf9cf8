"""Folders and logs of an application on a node. Agents use this module, too, so it imports no operators."""

from pathlib import Path
from typing import Final, NamedTuple

from agiledart_dataflow.plan.deployment import DeploymentPart
from agiledart_dataflow.plan.specification import Specification
from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_executor.snapshots.snapshot_file import EXECUTOR_FOLDERS, run_folder
from agiledart_kernel.codec import Codec
from agiledart_kernel.node_id import NodeId
from agiledart_sink_log.layout import log_directory
from agiledart_sink_log.plain_files import path_below
from agiledart_sink_log.protocol import latency_log_name, user_sink_name_fault

FOLDER: Final = "work"
MODELS: Final = "models"

_PLAN: Codec[StagePlan] = Codec(StagePlan)
_SPECIFICATION: Codec[Specification] = Codec(Specification)


def work_folder(root: Path, application: str) -> Path:
    """Return the folder of an application on a node, below the state directory `root`."""
    return path_below(root / FOLDER, application)


def models_folder(root: Path, application: str) -> Path:
    """Return the folder with the models of an application on a node. Only the agent writes there."""
    return path_below(root / MODELS, application)


class SinkLogNames(NamedTuple):
    """Names of the logs that sinks of one node write: logs that users named, and latency logs of the application."""

    of_users: tuple[str, ...]
    of_latencies: tuple[str, ...]


def logs_here(part: DeploymentPart, home: NodeId) -> SinkLogNames:
    """Return the names of the logs that the sinks at `home` write."""
    local_steps = steps_here(part, home)
    sinks = [
        (n, sink) for n, sink in enumerate(_SPECIFICATION.decode(part.specification).sinks) if sink.index in local_steps
    ]
    named = [sink.connector.path for _, sink in sinks if sink.connector is not None and sink.connector.kind == "log"]
    return SinkLogNames(
        tuple(name for name in named if not user_sink_name_fault(name)),
        tuple(latency_log_name(part.application, number) for number, _ in sinks),
    )


def own_folders(part: DeploymentPart, root: Path, home: NodeId, *, has_latencies: bool) -> tuple[Path, ...]:
    """Return the folders below the state directory `root` that an application may use at `home`: its working directory first."""
    work = work_folder(root, part.application)
    logs = logs_here(part, home)
    names = (*logs.of_users, *(logs.of_latencies if has_latencies else ()))
    run = run_folder(root, part.application, part.version)
    kinds = EXECUTOR_FOLDERS if part.by_epoch else ()
    return (work / "files", work, *(log_directory(root, name) for name in names), *(run / kind for kind in kinds))


def steps_here(part: DeploymentPart, home: NodeId) -> set[int]:
    """Return the first steps of the stages that have an instance at `home`."""
    stages = _PLAN.decode(part.plan).stages
    return {stages[stage].steps[0] for (stage, _), peer in part.places().items() if peer.node == home}
