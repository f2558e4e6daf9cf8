"""Which applications may share a process with others of their owner: small ones that need nothing of a process for themselves."""

from pathlib import Path
from typing import Final

from agiledart_connectors.credentials import ProvisionedSecrets
from agiledart_dataflow.plan.deployment import DeploymentPart
from agiledart_dataflow.plan.specification import Specification
from agiledart_executor.user_code.bundle import decode_bundle
from agiledart_executor.wire.agent_messages import Configure
from agiledart_kernel.codec import Codec

MAX_INSTANCES: Final = 16
"""Instances on this node of an application that counts as small."""

_FILES: Final = frozenset({"csv", "jsonl", "lines"})

SOURCES: Final = _FILES | {"call", "feed", "list", "mqtt", "mqtts", "tcp"}
SINKS: Final = frozenset({"log", "mqtt", "mqtts", "null"})
"""Kinds of connectors that load no native library, start no thread and write no file outside the application's folders."""

_SPECIFICATION: Codec[Specification] = Codec(Specification)


def why_alone(part: DeploymentPart, configuration: Configure) -> str:
    """Return why an application needs a process of its own; empty: it may share one."""
    if not part.owner:
        return "its owner is unknown"
    if not part.by_epoch:
        return "it is not saved, so the end of another application would end it"
    if any(placed.executor for placed in part.instances) or any(place.index for place in part.assignment):
        return "it has several executors, or parallel instances"
    here = sum(peer.node == configuration.home for peer in part.places().values())
    if here > MAX_INSTANCES:
        return f"it has more than {MAX_INSTANCES} instances here"
    if configuration.secrets != ProvisionedSecrets():
        return "it uses secrets"
    if packages := decode_bundle(part.bundle).requires:
        return f"it imports {packages[0]}, which may be native code"
    specification = _SPECIFICATION.decode(part.specification)
    if any(step.traits.shares_second for step in specification.steps):
        return "it may score with models"
    sinks = {sink.index for sink in specification.sinks}
    for step in specification.steps:
        if step.connector is None:
            continue
        connector = step.connector.connector()
        if connector.kind not in (SINKS if step.index in sinks else SOURCES):
            return f"its connector {connector.kind} may need a process of its own"
        if connector.kind in _FILES and not Path(connector.path).is_absolute():
            return f"{step.name} names a file by its place in the working directory"
    return ""
