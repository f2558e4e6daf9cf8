"""Port of the metrics: the configured one, or the next free one after the default, as a machine may have several agents."""

from agiledart_agent.event_log.agent_log import AgentLog
from agiledart_agent.metrics.metrics_server import MetricsServer
from agiledart_agent.settings import DEFAULT_METRICS, split_address

FURTHER_PORTS = 100
"""Ports that are tried after the default one; a port that a user has configured is the only one."""


async def listen_for_metrics(server: MetricsServer, configured: str, log: AgentLog) -> None:
    """Let a server listen at the configured address. Raises OperationFailed: the address is in use."""
    host, port = split_address(configured, "agent.metrics")
    taken = await server.listen(host, port, 1 + (FURTHER_PORTS if configured == DEFAULT_METRICS else 0))
    if taken != port and port:
        log.info("metrics.moved", f"  metrics on port {taken}: {port} is in use by another process")
