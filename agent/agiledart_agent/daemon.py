"""The agent as a program: start, signals, drain, exit codes.

Exit codes: 0 ended on request, 1 could not start or had to give up, 2 a setting is wrong.
"""

import asyncio
import contextlib
import gc
import os
import signal
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from agiledart_agent.agent import Agent, write_agent_json
from agiledart_agent.event_log.agent_log import AgentLog
from agiledart_agent.executors.protected_paths import ALLOWED_ROOT, root_refusal
from agiledart_agent.host.freed_memory import return_freed_memory
from agiledart_agent.host.service_manager import ServiceManager
from agiledart_agent.identity.clock_wait import ClockWait
from agiledart_agent.identity.identity import Identity
from agiledart_agent.identity.node_name import NodeName
from agiledart_agent.identity.operator_identity import OperatorIdentity, operator_of
from agiledart_agent.identity.tokens import create_token, parse_token, read_token, redeem
from agiledart_agent.paper_preset import own_settings
from agiledart_agent.ring.peer_addresses import PeerAddressFile
from agiledart_agent.settings import AgentSettings, default_name
from agiledart_agent.state_files.backed_up_file import is_stored
from agiledart_kernel.errors import AgileDartError, ConfigurationError, OperationFailed
from agiledart_transport.event_loop import run_on_uvloop

_TRACES = ("peers.json", "sink-logs", "runs")
"""Files that exist only on a node that was in a network."""

FIRST_TOKEN_USES = 20
FIRST_TOKEN_SECONDS = 24 * 3600
DRAIN_SECONDS = 15.0
"""Time from SIGTERM to an end that is not clean. The hand-over of a node's work takes up to eight seconds of it.

Service managers wait longer: the systemd unit and the compose file 20 s. A plain `docker stop` kills after ten seconds;
use `--timeout 20`.
"""


def run_agent(settings: AgentSettings) -> int:
    """Run an agent until it is stopped. Return the exit code."""
    log = AgentLog(settings.log_format, settings.name, settings.verbose)
    identity: Identity | None = None
    name: NodeName | None = None
    service_manager = ServiceManager.from_environment(os.environ)
    clock = ClockWait(
        lambda text: log.warning("clock", f"  {text}"), service_manager.extend_start_timeout, settings.parent_fd
    )
    try:
        identity = clock.until(lambda: Identity.load_or_create(settings.state_dir))
        name = NodeName(settings.name, settings.state_dir, is_given=settings.name != default_name())
        if name.text != settings.name:
            settings = replace(settings, name=name.text)
            log = AgentLog(settings.log_format, settings.name, settings.verbose)
            log.info(
                "name.moved", f"  another agent of this machine is called {default_name()}; this one is {name.text}"
            )
        if settings.preset:
            own = own_settings(settings.preset, vars(settings))
            text = f"; your own values win for {', '.join(own)}" if own else ""
            log.info("preset", f"  preset {settings.preset}{text} (agiledart config show lists all values)")
        remembered = _remembered(settings, identity, log)
        membership = clock.until(partial(_network, settings, identity, log, remembered))
        if os.geteuid() == 0:
            log.warning("started.as_root", root_refusal(settings) or ALLOWED_ROOT)
        return run_on_uvloop(_main(settings, identity, log, service_manager, membership))
    except ConfigurationError as error:
        log.error("settings", str(error))
        return 2
    except AgileDartError as error:
        log.error("failed", str(error))
        return 1
    except OSError as error:  # a full disk, no descriptors, a path that no socket can have
        where = f": {error.filename}" if error.filename else ""
        log.error("failed", f"{error.strerror or error}{where}")
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        if name is not None:
            name.close()
        if identity is not None:
            identity.close()


def _remembered(settings: AgentSettings, identity: Identity, log: AgentLog) -> list[str]:
    """Return the stored addresses of the ring. Log which state files were repaired."""
    address_file = PeerAddressFile(settings.state_dir)
    remembered = address_file.addresses()
    for notice in (*identity.repaired.values(), *([address_file.notice] if address_file.notice else [])):
        log.warning("state.repaired", notice)
    return remembered


class StartingMembership(NamedTuple):
    """Network of an agent that starts.

    Args:
        seeds: addresses to contact.
        is_new_network: it was created just now.
        operator: user of the control socket.
    """

    seeds: list[str]
    is_new_network: bool
    operator: OperatorIdentity


def _network(settings: AgentSettings, identity: Identity, log: AgentLog, remembered: list[str]) -> StartingMembership:
    """Join a network, create one, or go on in one. Raises Refused while the clock is behind."""
    if settings.join:
        token = parse_token(read_token(settings.join))
        if token.role != "agent":
            raise OperationFailed(
                f"This token is for a {token.role}, not for an agent. Make one: agiledart token create"
            )
        if identity.is_untouched and identity.network != token.network:
            _leave_previous_network(settings, identity, log)
        try:
            chain = redeem(token, identity.public_key, int(time.time()))
            identity.join_network(token.network, chain, token.signed_record)
        except OperationFailed:
            if identity.network != token.network or not _is_member(identity):
                raise  # otherwise a service restarts with the token of its first day
        seeds = [*token.addresses, *(a for a in remembered if a not in token.addresses)]
        return StartingMembership(seeds, False, operator_of(identity, token))
    if identity.network:
        identity.check_membership()
        return StartingMembership(remembered, False, operator_of(identity, None))
    _check_new(settings, identity)
    log.info("network.new", f"No network known in {settings.state_dir}: starting a new one.")
    identity.create_network()
    return StartingMembership([], True, operator_of(identity, None))


def _check_new(settings: AgentSettings, identity: Identity) -> None:
    """Refuse to create a second network over the remains of a first one, unless the user asked for it. Raises OperationFailed."""
    remains = [name for name in _TRACES if _is_there(settings.state_dir / name)]
    if not remains or settings.new_network or is_stored(settings.state_dir / "authority.key"):
        return  # with the authority's key it is the same network again
    raise OperationFailed(
        f"{settings.state_dir / 'network.json'} is missing: it names the network of this node. The node was in a network, since "
        f"{' and '.join(remains)} {'is' if len(remains) == 1 else 'are'} here. Put a copy back, or join again with a token:  "
        "agiledart agent --join @FILE   To create another network instead:  agiledart agent --new-network"
    )


def _is_there(path: Path) -> bool:
    return is_stored(path) and (not path.is_dir() or any(path.iterdir()))


def _leave_previous_network(settings: AgentSettings, identity: Identity, log: AgentLog) -> None:
    """Leave a network of one node that never ran an application for the network of a token, when the user agrees."""
    old = identity.network.hex()[:8]
    if not settings.leave_previous_network:
        question = f"{settings.state_dir} created network {old}, where nothing ever ran. Leave it for the network of the token?"
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise OperationFailed(f"{question} Confirm with --leave-previous-network, or give another --state-dir.")
        sys.stderr.write(f"{question} [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise OperationFailed(
                f"The agent stays in network {old}. Start it without --join, or give another --state-dir."
            )
    identity.leave_network()
    log.info("network.left", f"Left network {old}, of which this was the only node.")


def _is_member(identity: Identity) -> bool:
    try:
        identity.grant()
    except AgileDartError:
        return False
    return True


async def _main(
    settings: AgentSettings,
    identity: Identity,
    log: AgentLog,
    supervisor: ServiceManager,
    membership: StartingMembership,
) -> int:
    began = time.monotonic()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: log.unhandled(context))
    agent = Agent(settings, identity, log, membership.operator)
    signals = _Signals(loop, settings.parent_fd)
    watchdog = asyncio.create_task(supervisor.keep_alive())
    path = settings.state_dir / "agent.json"
    with contextlib.suppress(OSError):
        path.unlink()  # of an incarnation that ended without removing it
    drain = False
    starting = asyncio.create_task(agent.start(membership.seeds))
    try:
        first: set[asyncio.Future[Any]] = {starting, signals.end}
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            write_agent_json(path, agent.description())
            _greet(agent, settings, identity, log, time.monotonic() - began, is_new_network=membership.is_new_network)
            supervisor.notify("READY=1", f"STATUS=links on {agent.address}")
            gc.collect()
            gc.freeze()  # objects of the start-up stay for good; the collector need not examine them again
            return_freed_memory()
            await asyncio.wait({signals.end, agent.leave_asked}, return_when=asyncio.FIRST_COMPLETED)
            drain = agent.leave_asked.result() if agent.leave_asked.done() else signals.end.result()
        else:
            starting.cancel()
        return 0
    finally:
        supervisor.notify("STOPPING=1", "STATUS=leaving the ring")
        if drain:
            log.info("leaving", "leaving the ring (a second signal cuts)")
        ending = asyncio.create_task(agent.stop(drain=drain))
        signals.again = loop.create_future()
        last: set[asyncio.Future[Any]] = {ending, signals.again}
        await asyncio.wait(last, timeout=DRAIN_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        # A second signal or the end of the time replaces the orderly end by a plain one.
        if not ending.done():
            ending.cancel()
            cut = asyncio.create_task(agent.stop(drain=False))
            await asyncio.wait({cut}, timeout=3.0)
        watchdog.cancel()
        with contextlib.suppress(OSError):
            path.unlink()


class _Signals:
    """Signals of the process: SIGTERM and SIGINT request a drain; a second one cuts it short; a closed parent pipe cuts at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop, parent_fd: int) -> None:
        self.end: asyncio.Future[bool] = loop.create_future()
        self.again: asyncio.Future[bool] | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ask, True)
        with contextlib.suppress(ValueError, OSError):
            loop.add_signal_handler(signal.SIGHUP, self._ask, True)
        if parent_fd >= 0:
            os.set_blocking(parent_fd, False)
            loop.add_reader(parent_fd, self._parent, loop, parent_fd)

    def _ask(self, drain: bool) -> None:
        if not self.end.done():
            self.end.set_result(drain)
        elif self.again is not None and not self.again.done():
            self.again.set_result(True)

    def _parent(self, loop: asyncio.AbstractEventLoop, parent_fd: int) -> None:
        with contextlib.suppress(BlockingIOError):
            if not os.read(parent_fd, 64):
                loop.remove_reader(parent_fd)
                self._ask(False)


def _greet(
    agent: Agent, settings: AgentSettings, identity: Identity, log: AgentLog, took: float, *, is_new_network: bool
) -> None:
    description = agent.description()
    peers = len(agent.known_peers())
    if peers:
        log.info(
            "ring.joined",
            f"  joined the ring of {peers + 1} as {settings.name} in {took:.1f} s",
            nodes=peers + 1,
            seconds=round(took, 3),
        )
    peer_id, metrics = identity.peer_id, description["metrics"]
    log.info(
        "started",
        f"  node {settings.name}   {peer_id[:8]}…{peer_id[-4:]}   links on {description['address']}"
        f"   control {description['control']}" + (f"   metrics http://{metrics}/metrics" if metrics else ""),
        address=description["address"],
        metrics=metrics,
        node_id=description["node_id"],
    )
    if is_new_network and settings.log_format == "console" and sys.stderr.isatty():
        token = create_token(
            identity.issuer(),
            now_seconds=int(time.time()),
            addresses=(agent.address,),
            uses=FIRST_TOKEN_USES,
            expires=FIRST_TOKEN_SECONDS,
            operator="submitter",
        )
        agent.register_token(token)
        # A token is a secret: it is shown to the person at the terminal, and never reaches a log.
        sys.stderr.write(
            f"  add a node ({FIRST_TOKEN_USES} uses, 24 h):   agiledart agent --join -   and paste this there:\n{token}\n"
        )
    elif is_new_network:
        create = f"agiledart token create --agent {settings.state_dir} --output FILE"
        log.info("token.hint", f"  add a node:   {create}   and there:   agiledart agent --join @FILE")
