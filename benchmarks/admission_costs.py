"""Cost of admission, as ratios of pairs measured alternately: links, an agent's memory, executors that confine themselves.

    python -m benchmarks.admission_costs [--links 300] [--runs 9] [--trips 60000] [-o json]

The halves of a pair run one after the other, in changing order, so that a busy machine disturbs both. The medians of pairs are
reported. The benchmark compares:

* a link of a member that shows a token's record and a receipt, with one whose chain is as long and whose key needs no count;
* the modules of admission (uses, receipts, bans, renewal, audit) and 1,000 met keys, with the same process before it loaded them;
* the taxi job on an agent whose executors confine themselves by Landlock, with `confine = false`: its rate by the clock, and the
  CPU time of agent and executors, which a busy machine disturbs less. The time of the
  confinement itself is measured separately.
"""

import argparse
import asyncio
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ed25519

from agiledart_agent.identity.identity import Identity
from agiledart_agent.identity.tokens import Token, parse_token, redeem
from agiledart_agent.identity.user_identity import identities_folder
from agiledart_cli.verbs.cluster import Mesh
from agiledart_control.submission import make_submission
from agiledart_examples.taxi_trips import generate
from agiledart_executor.user_code.application_confinement import confine_code_check
from agiledart_kernel.frames import FrameKind, Hello, decode_hello, encode_hello, frame
from agiledart_kernel.grants import sign_link
from agiledart_node.wire.commands import CreateToken, Forget, Status
from agiledart_transport.certificates import make_credentials, public_bytes
from agiledart_transport.tls_contexts import client_context
from benchmarks.processes import cpu_seconds
from benchmarks.run import QUERY

GOALS = {
    "handshake_ratio": "≤ 1.10",
    "admission_memory_mb": "≤ 1",
    "confining_cpu_ms": "≤ 5",
    "confined_cpu_ratio": "0.98 … 1.02",
    "confined_rate_ratio": "0.98 … 1.02",
}

_OTHERS = (
    "agiledart_agent.identity.rotation", "agiledart_agent.sink_logs.sink_log_server", "agiledart_agent.control.control_api",
    "uvloop", "agiledart_transport.listener", "agiledart_node.scheduling.node_scheduling",
    "agiledart_node.recovery.recovery_service",
    "agiledart_node.user_commands.stop_requests", "agiledart_agent.circuits.relay_service",
    "agiledart_agent.executors.executor_pool", "agiledart_node.draining.node_drain",
)  # fmt: skip
_ADMISSION = (
    "agiledart_agent.admission.registrar", "agiledart_agent.admission.renewal", "agiledart_agent.audit.audit_trail",
    "agiledart_agent.audit.audit_lines", "agiledart_node.banning.ban_commands", "agiledart_node.registering.token_registry",
    "agiledart_node.registering.membership_renewal", "agiledart_node.user_commands.audit_queries",
)  # fmt: skip
_MEMORY = """
import gc, importlib, sys
others, admission = (words.split(",") for words in sys.argv[1:])

def private():
    gc.collect()
    return sum(int(line.split()[1]) for line in open("/proc/self/smaps_rollup") if line.startswith("Private"))

for name in others:
    importlib.import_module(name)
assert not set(admission) & set(sys.modules), set(admission) & set(sys.modules)
before = private()
for name in admission:
    importlib.import_module(name)
from agiledart_agent.admission.members import RegisteredKeys
members = RegisteredKeys()
for number in range(1_000):
    members.note(bytes(32), number.to_bytes(32), number)
print((private() - before) / 1024)
"""


class LinkOpener:
    """Opener of links to an agent with one key."""

    def __init__(self, address: str, network: bytes, key: ed25519.Ed25519PrivateKey, hello: Hello) -> None:
        self._host, _, port = address.rpartition(":")
        self._port, self._hello = int(port), hello
        self._context = client_context(make_credentials(key, network, int(time.time())))

    async def link(self) -> tuple[float, Hello]:
        """Open a link; return the milliseconds from the first packet to the agent's HELLO, and the HELLO."""
        began = time.perf_counter()
        reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._context, server_hostname="")
        writer.write(frame(FrameKind.HELLO, encode_hello(self._hello)))
        await writer.drain()
        head = await reader.readexactly(5)
        body = await reader.readexactly(int.from_bytes(head[:4], "big"))
        took = (time.perf_counter() - began) * 1_000
        writer.transport.abort()
        return took, decode_hello(body)


def handshakes(links: int) -> dict[str, float]:
    """Compare links with and without a counted key's record and receipt, on one agent that knows both keys."""
    with Mesh(1) as mesh:
        mesh.start()
        with mesh.client(0) as client:
            token = parse_token(str(client.ask(CreateToken())["token"]))
        authority = Identity.read(mesh.agents[0].folder).authority
        assert authority is not None
        return asyncio.run(_handshakes(token.addresses[0], authority, token, links))


async def _handshakes(address: str, authority: ed25519.Ed25519PrivateKey, token: Token, links: int) -> dict[str, float]:
    now, network = int(time.time()), token.network
    plain_key, counted_key = ed25519.Ed25519PrivateKey.generate(), ed25519.Ed25519PrivateKey.generate()
    above = ed25519.Ed25519PrivateKey.generate()  # as long a chain as the other one's
    chain = sign_link(
        network, authority.sign, (), key=public_bytes(above), use="act", role="admin", not_before=now, not_after=now + 3_600,
        depth=2,
    )  # fmt: skip
    chain = sign_link(
        network, above.sign, chain, key=public_bytes(plain_key), use="act", role="agent", not_before=now,
        not_after=now + 3_600,
    )  # fmt: skip
    plain = LinkOpener(address, network, plain_key, Hello(service="overlay", chain=chain))
    counted_chain = redeem(token, public_bytes(counted_key), now)
    first = LinkOpener(
        address, network, counted_key, Hello(service="overlay", chain=counted_chain, token=token.signed_record)
    )
    _, greeting = await first.link()
    hello = Hello(service="overlay", chain=counted_chain, token=token.signed_record, receipt=greeting.welcome)
    counted = LinkOpener(address, network, counted_key, hello)
    pairs = []
    for number in range(links + 10):
        both = (plain, counted) if number % 2 else (counted, plain)
        took = {opener: (await opener.link())[0] for opener in both}
        if number >= 10:
            pairs.append((took[plain], took[counted]))
    return {
        "handshake_ms": round(statistics.median(plain_ms for plain_ms, _ in pairs), 3),
        "handshake_with_receipt_ms": round(statistics.median(counted_ms for _, counted_ms in pairs), 3),
        "handshake_ratio": round(statistics.median(counted_ms / plain_ms for plain_ms, counted_ms in pairs), 4),
        "receipt_bytes": len(greeting.welcome),
    }


def memory(times: int = 5) -> float:
    """Return the MB that the modules of admission and 1,000 met keys take."""
    command = [sys.executable, "-c", _MEMORY, ",".join(_OTHERS), ",".join(_ADMISSION)]
    sizes = [float(subprocess.check_output(command)) for _ in range(times)]
    return round(statistics.median(sizes), 2)


def confining(times: int = 40) -> dict[str, float]:
    """Return the milliseconds that a starting process takes to confine itself; each measurement forks a new process."""
    spent, took = [], []
    with tempfile.TemporaryDirectory(prefix="adc-", dir="/tmp") as folder:
        closed = (folder, str(identities_folder()))
        for _ in range(times):
            reading, writing = os.pipe()
            if not (pid := os.fork()):
                began, used = time.perf_counter(), time.process_time()
                done = confine_code_check(Path(folder), closed)
                both = time.process_time() - used, time.perf_counter() - began
                os.write(writing, json.dumps([1_000 * seconds for seconds in both] if done else [0.0, 0.0]).encode())
                os._exit(0)
            os.waitpid(pid, 0)
            cpu_ms, elapsed_ms = json.loads(os.read(reading, 256))
            spent.append(cpu_ms)
            took.append(elapsed_ms)
            os.close(reading)
            os.close(writing)
    return {"confining_cpu_ms": round(statistics.median(spent), 2), "confining_least_ms": round(min(took), 2)}


def jobs(runs: int, trips: Path, folder: Path) -> dict[str, float]:
    """Run the taxi job with and without confinement, alternately."""
    with Mesh(1) as confined, Mesh(1, environment={"AGILEDART_AGENT__CONFINE": "false"}) as free:
        meshes = {"confined": confined, "free": free}
        for mesh in meshes.values():
            mesh.start()
        rates, spent = [], []
        for number in range(runs + 1):
            took: dict[str, tuple[float, float]] = {}
            for name in sorted(meshes, reverse=bool(number % 2)):
                took[name] = _job(meshes[name], trips, folder / f"{name}.csv")
            if number:  # the first pair warms caches
                spent.append(took["confined"][0] / took["free"][0])
                rates.append(took["free"][1] / took["confined"][1])
    return {
        "confined_cpu_ratio": round(statistics.median(spent), 4),
        "confined_rate_ratio": round(statistics.median(rates), 4),
        "rate_ratios_low": round(min(rates), 4),
        "rate_ratios_high": round(max(rates), 4),
    }


def _job(mesh: Mesh, trips: Path, out: Path) -> tuple[float, float]:
    """Return (CPU seconds of the agent and its executors, seconds during which rows flowed) of one run."""
    root = mesh.agents[0].process.pid
    before = cpu_seconds(root)
    with mesh.client(0) as client:
        accepted = client.ask(make_submission(QUERY, {"trips": f"csv:{trips}", "report": f"csv:{out}"}, {}))
        while (body := client.ask(Status(accepted["name"])))["state"] in ("deploying", "running"):
            time.sleep(0.05)
        if body["state"] != "finished":
            raise SystemExit(f"{accepted['name']}: {body['state']}: {body.get('reason')}")
        client.ask(Forget(accepted["name"]))
        return cpu_seconds(root) - before, float(body["summary"]["wall_seconds"])


def main() -> int:
    """Run all measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--links", type=int, default=300)
    parser.add_argument("--runs", type=int, default=9, help="pairs of runs")
    parser.add_argument("--trips", type=int, default=60_000)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    given = parser.parse_args()
    figures: dict[str, float] = dict(handshakes(given.links))
    figures["admission_memory_mb"] = memory()
    figures |= confining()
    with tempfile.TemporaryDirectory(prefix="adc-", dir="/tmp") as folder:
        trips = Path(folder) / "trips.csv"
        with trips.open("w") as file:
            file.writelines(line + "\n" for line in itertools.islice(generate(seed=3), given.trips))
        figures |= jobs(given.runs, trips, Path(folder))
    if given.output == "json":
        print(json.dumps(figures))
        return 0
    for name, value in figures.items():
        print(f"{name:28} {value:>10}   {f'goal {GOALS[name]}' if name in GOALS else ''}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
