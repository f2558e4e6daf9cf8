"""Disk of a virtual node: files of voters and attempts, snapshots, fragments, source logs, parts of sinks."""

from dataclasses import dataclass, field

from agiledart_kernel.node_id import NodeId
from agiledart_recovery.wire.effects import AttemptFile, FragmentKey, VoterFile
from agiledart_recovery.wire.names import CheckpointId, InstanceId, RunId
from agiledart_simulation.pipeline.pipeline_messages import PipelineRow


@dataclass
class VirtualSourceLog:
    """Log of a source that cannot be read again; a power cut leaves the first `synced` rows."""

    rows: list[PipelineRow] = field(default_factory=list)
    synced: int = 0
    trimmed: int = 0


@dataclass
class SinkPart:
    """Rows of a sink on one node: all of them are on the disk, and readers see the first `committed`."""

    rows: list[PipelineRow] = field(default_factory=list)
    committed: int = 0


@dataclass
class Disk:
    """A node's disk. A power cut loses what is not synced; a killed process loses what it had not written."""

    voters: dict[RunId, VoterFile] = field(default_factory=dict)
    attempts: dict[RunId, AttemptFile] = field(default_factory=dict)
    snapshots: dict[tuple[InstanceId, CheckpointId], bytes] = field(default_factory=dict)
    fragments: dict[FragmentKey, bytes] = field(default_factory=dict)
    owners: dict[FragmentKey, NodeId] = field(default_factory=dict)
    logs: dict[InstanceId, VirtualSourceLog] = field(default_factory=dict)
    part: SinkPart = field(default_factory=SinkPart)
    wipes: int = 0

    def power_cut(self) -> int:
        """Lose what was not synced; return the number of lost rows."""
        lost = 0
        for log in self.logs.values():
            lost += len(log.rows) - log.synced
            del log.rows[log.synced :]
        return lost

    def wipe(self) -> None:
        """Replace the disk by a new one."""
        self.voters, self.attempts, self.snapshots, self.fragments, self.owners = {}, {}, {}, {}, {}
        self.wipes += 1
