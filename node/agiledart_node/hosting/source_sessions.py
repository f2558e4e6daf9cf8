"""Sources of an ended run for which the systems that they read from may keep sessions."""

from collections.abc import Container
from dataclasses import dataclass

from agiledart_dataflow.plan.connectors import KEEPS_SESSIONS
from agiledart_dataflow.plan.deployment import DeploymentPart
from agiledart_dataflow.plan.stage_plan import StagePlan
from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import RemoteProtocolError
from agiledart_kernel.node_id import NodeId
from agiledart_node.records.application import SPECIFICATION_CODEC, ApplicationRecord
from agiledart_node.wire.effects import EndSourceSessions, SourceSession

_PLAN: Codec[StagePlan] = Codec(StagePlan)


@dataclass(frozen=True)
class _Run:
    """A run: its sources and plan name the sessions, its command the secrets."""

    application: str
    version: int
    specification: bytes
    plan: bytes
    signed_command: bytes


def sessions_at(part: DeploymentPart, nodes: Container[NodeId]) -> EndSourceSessions | None:
    """Return the request to end the sessions of a run's sources at these nodes; None when there are none."""
    run = _Run(part.application, part.version, part.specification, part.plan, part.signed_command)
    return _request(run, [copy for copy, peer in part.places().items() if peer.node in nodes])


def sessions_of(record: ApplicationRecord) -> EndSourceSessions | None:
    """Return the request to end the sessions of all sources of a run; None when there are none."""
    run = _Run(record.name, record.version, record.specification, record.plan, record.signed_command)
    return _request(run, [(place.stage, place.index) for place in record.assignment])


def _request(run: _Run, copies: list[tuple[int, int]]) -> EndSourceSessions | None:
    """Return the request for these (stage, index); None when no broker keeps anything for them."""
    try:
        sources = {
            step.index: (step.name, step.connector)
            for step in SPECIFICATION_CODEC.decode(run.specification).sources
            if step.connector is not None and step.connector.kind in KEEPS_SESSIONS
        }
        stages = _PLAN.decode(run.plan).stages if sources else ()
    except RemoteProtocolError:  # another version of the code made it
        return None
    sessions = []
    for stage, index in sorted(copies):
        if stage < len(stages) and (source := sources.get(stages[stage].steps[0])) is not None:
            sessions.append(SourceSession(source[1], source[0], index))
    if not sessions:
        return None
    return EndSourceSessions(run.application, run.version, tuple(sessions), run.signed_command)
