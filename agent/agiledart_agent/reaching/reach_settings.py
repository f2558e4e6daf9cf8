"""Rule that says whether an agent uses py-libp2p, and for what."""

from ipaddress import ip_address

from agiledart_agent.event_log.agent_log import AgentLog
from agiledart_agent.identity.identity import Identity
from agiledart_agent.reaching.reach_process import has_libp2p
from agiledart_agent.settings import UPNP, AgentSettings, split_address
from agiledart_reach.messages import ReachStart

HOW_TO_INSTALL = (
    'py-libp2p is not installed: pip install "agiledart[libp2p]" (it needs gcc, python3-dev and libgmp-dev)'
)


def reach_start(settings: AgentSettings, identity: Identity, address: str, log: AgentLog) -> ReachStart | None:
    """Return the request for the reach process; None: the settings want none, or it cannot run. Log what is missing.

    Args:
        address: HOST:PORT under which machines of the local network reach this agent.
    """
    wants_port = settings.advertise == UPNP
    host, port = split_address(address)
    is_loopback = _is_loopback(host)
    if settings.libp2p == "off" or (settings.libp2p == "auto" and is_loopback and not wants_port):
        return None
    if not has_libp2p():
        if settings.libp2p == "on" or wants_port:
            log.warning("reach.unavailable", f"  {HOW_TO_INSTALL}")
        return None
    return ReachStart(identity.public_key, identity.network.hex(), host, port, True, wants_port)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
