"""Scenarios of link faults, and the figures reported for each."""

import itertools
import math
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.routes.mesh import NO_RELAY, MeshJob, RouteLab

RATE = 200
WIDTH = 50


@dataclass(frozen=True)
class LinkScenario:
    """One kind of fault, which begins `BEGIN` seconds after the first rows.

    Args:
        name, paths: of the run; seconds: for which rows come.
        act: causes the fault; returns the measured figures.
        rate, width: rows a second, their bytes.
    """

    name: str
    paths: str
    seconds: float
    act: Callable[[RouteLab, MeshJob], dict[str, Any]]
    rate: int = RATE
    width: int = WIDTH
    delivery: str = ""
    before: Callable[[RouteLab], None] | None = None
    all_relay: bool = False


def sleep_until(instant: float) -> None:
    time.sleep(max(0.0, instant - time.monotonic()))


def _shares(job: MeshJob, first: dict[str, Any]) -> dict[str, float]:
    """Return frames by kind of path since an earlier sample."""
    now = job.route().get("frames", {"direct": 0, "relayed": 0})
    passed = {kind: now[kind] - first.get(kind, 0) for kind in ("direct", "relayed")}
    whole = max(1, sum(passed.values()))
    return {kind: round(count / whole, 3) for kind, count in passed.items()}


def trouble_and_healing(break_it: Callable[[RouteLab], None], heal: Callable[[RouteLab], None], seconds: float) -> Any:
    """Cause a fault for so many seconds; return pauses of the rows, and the paths that carry them over time."""

    def act(lab: RouteLab, job: MeshJob) -> dict[str, Any]:
        began, wall_ms = time.monotonic(), time.time() * 1_000
        break_it(lab)
        sleep_until(began + seconds)
        healed, route = time.monotonic(), job.route()
        by = route.get("relay", "")
        left = [
            (change["at_ms"] - wall_ms) / 1_000 for change in route.get("changes", ()) if change["at_ms"] >= wall_ms
        ]
        heal(lab)
        sleep_until(healed + 5)
        frames = job.route().get("frames", {})
        sleep_until(healed + 12)
        return {
            "left_after_s": round(left[0], 2) if left else None,
            "by": by,
            "longest_gap_ms": round(1000 * job.watch.gap(began - 0.1, healed)),
            "first_row_after_healing_ms": round(1000 * job.watch.first(healed)),
            "gap_after_healing_ms": round(1000 * job.watch.gap(healed, healed + 12)),
            "direct_share_5_s_after_healing": _shares(job, frames)["direct"],
        }

    return act


def cut(lab: RouteLab) -> None:
    lab.hosts.link(1, 6, cut=1)


def mend(lab: RouteLab) -> None:
    lab.hosts.link(1, 6, cut=0, loss=0, rate=0)


def cut_forward(lab: RouteLab) -> None:
    lab.hosts.one_way(1, 6, cut=1)


def cut_backward(lab: RouteLab) -> None:
    lab.hosts.one_way(6, 1, cut=1)


def lose(lab: RouteLab) -> None:
    lab.hosts.link(1, 6, loss=0.8)


def flapping(lab: RouteLab, job: MeshJob) -> dict[str, Any]:
    """Cut and restore the direct link every three seconds."""
    began, first = time.monotonic(), job.watch.seen[-1][1]
    for turn in range(20):
        (cut if turn % 2 == 0 else mend)(lab)
        sleep_until(began + 3 * (turn + 1))
    ended, last = time.monotonic(), job.watch.seen[-1][1]
    mend(lab)
    whole = (ended - began) * RATE * (last / max(1, _rows_in(job)))
    return {
        "changes": sum(job.route().get("moves", {}).values()),
        "throughput_of_offered": round((last - first) / whole, 3),
        "longest_gap_ms": round(1000 * job.watch.gap(began, ended)),
    }


def _rows_in(job: MeshJob) -> int:
    with job.out.open("rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(1 << 20), b""))


def relay_in_trouble(what: str) -> Callable[[RouteLab, MeshJob], dict[str, Any]]:
    """Cut the direct link; then kill, freeze or drain the relay in use."""

    def act(lab: RouteLab, job: MeshJob) -> dict[str, Any]:
        cut(lab)
        time.sleep(6)
        by = str(job.route().get("relay", ""))
        if not by:
            return {"by": by}
        relay, began = int(by[1:]), time.monotonic()
        if what == "killed":
            lab.signal_agent(relay, signal.SIGKILL)
        elif what == "frozen":
            lab.hosts.isolate(relay)
            lab.signal_agent(relay, signal.SIGSTOP)
        else:
            lab.signal_agent(relay, signal.SIGTERM)
        sleep_until(began + 6)
        after = job.route().get("relay", "")
        if what == "frozen":
            lab.signal_agent(relay, signal.SIGCONT)
            lab.hosts.isolate(relay, cut=False)
        mend(lab)
        return {"by": by, "then_by": after, "longest_gap_ms": round(1000 * job.watch.gap(began, began + 6))}

    return act


def all_cut(lab: RouteLab, job: MeshJob) -> dict[str, Any]:
    """Cut all paths to the last host for 20 s: long enough for it to be declared dead, so recovery begins."""
    for host in range(1, NO_RELAY):
        lab.hosts.link(host, 6, cut=1)
    time.sleep(20)
    healed = time.monotonic()
    for host in range(1, NO_RELAY):
        lab.hosts.link(host, 6, cut=0)
    sleep_until(healed + 8)
    first = job.watch.first(healed)
    return {"first_row_after_healing_ms": None if math.isinf(first) else round(1_000 * first)}


def thin(lab: RouteLab, job: MeshJob) -> dict[str, Any]:
    """Limit the link to 2 Mbit/s for 4 Mbit/s of rows; afterwards restore it."""
    lab.hosts.link(1, 6, rate=250_000)
    began = time.monotonic()
    sleep_until(began + 60)
    moves, sent = sum(job.route().get("moves", {}).values()), job.figure("frames_doubled")
    frames = sum(job.route().get("frames", {}).values())
    sleep_until(began + 120)
    ended = time.monotonic()
    passed = sum(job.route().get("frames", {}).values()) - frames
    mend(lab)
    return {
        "changes_in_10_s": round((sum(job.route().get("moves", {}).values()) - moves) / 6, 2),
        "doubled": round((job.figure("frames_doubled") - sent) / max(1, passed), 4),
        "bytes_per_second": round(job.watch.bytes_in(began + 60, ended) / (ended - began - 60)),
        "moves": job.route().get("moves", {}),
    }


def stopped_receiver(lab: RouteLab, job: MeshJob) -> dict[str, Any]:
    """Stop the receiver's process for five seconds."""
    pids = lab.executors(6)
    for pid in pids:
        lab.signal_process(pid, signal.SIGSTOP)
    time.sleep(5)
    for pid in pids:
        lab.signal_process(pid, signal.SIGCONT)
    time.sleep(3)
    return {"changes": sum(job.route().get("moves", {}).values()), "resent": job.figure("frames_resent")}


def held_receiver(lab: RouteLab, job: MeshJob) -> dict[str, Any]:
    """Stop the receiver's process repeatedly for half a second, as blocking user code would."""
    pids = lab.executors(6)
    for _ in range(50):
        for number, seconds in ((signal.SIGSTOP, 0.5), (signal.SIGCONT, 0.05)):
            for pid in pids:
                lab.signal_process(pid, number)
            time.sleep(seconds)
    return {"changes": sum(job.route().get("moves", {}).values()), "resent": job.figure("frames_resent")}


def nothing(lab: RouteLab, job: MeshJob) -> dict[str, Any]:
    """Leave all links healthy."""
    time.sleep(20)
    route = job.route()
    return {"changes": sum(route["moves"].values()), "circuits": len(route["circuits"])}


CHAINS = ((1, 2, 3, 6), (1, 4, 5, 6))
CHAIN_SECONDS = (0.005, 0.008)
SLOW_SECONDS = 0.15


def two_chains(lab: RouteLab) -> None:
    """Leave two chains of two relays fast, and every other link slow but alive."""
    for first in range(1, 7):
        for second in range(first + 1, 7):
            lab.hosts.link(first, second, delay=SLOW_SECONDS)
    for chain, seconds in zip(CHAINS, CHAIN_SECONDS, strict=True):
        for first, second in itertools.pairwise(chain):
            lab.hosts.link(first, second, delay=seconds)


def _until(
    job: MeshJob, is_so: Callable[[dict[str, Any]], bool], seconds: float
) -> tuple[float | None, dict[str, Any]]:
    """Wait until a route is as asked; return how long that took, None for never, and the route."""
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        if (route := job.route()) and is_so(route):
            return round(time.monotonic() - began, 1), route
        time.sleep(0.2)
    return None, job.route()


def slow_two_hops_away(lab: RouteLab, job: MeshJob) -> dict[str, Any]:
    """Make the last link of the chain in use ten times slower, and restore it."""
    onto_chain, first = _until(job, lambda route: route["relay"] in ("a2", "a4"), 30)
    by = first.get("relay", "")
    chain = CHAINS[0] if by == "a2" else CHAINS[1]
    other = "a4" if by == "a2" else "a2"
    lab.hosts.link(chain[2], 6, delay=10 * CHAIN_SECONDS[CHAINS.index(chain)])
    onto_other, route = _until(job, lambda route: route["relay"] == other, 30)
    moves = [f"{change['from']}→{change['to']}: {change['reason']}" for change in route.get("changes", ())]
    return {
        "onto_a_chain_s": onto_chain,
        "by": by,
        "onto_the_other_s": onto_other,
        "then_by": route.get("relay", ""),
        "changes": moves,
        "circuits": [(row["relay"], row["round_trip_ms"]) for row in route.get("circuits", ())],
        "hops": route.get("hops", ()),
    }


def slow(lab: RouteLab) -> None:
    lab.hosts.link(1, 6, delay=SLOW_SECONDS)


def fast(lab: RouteLab) -> None:
    lab.hosts.link(1, 6, delay=0.005)


def slow_direct(lab: RouteLab, job: MeshJob) -> dict[str, Any]:
    """Make the direct link slow, but alive, for 20 s."""
    slow(lab)
    left, _ = _until(job, lambda route: bool(route["relay"]), 20)
    time.sleep(20)
    stayed = job.route().get("relay", "")
    fast(lab)
    back, _ = _until(job, lambda route: not route["relay"], 60)
    return {"left_after_s": left, "by": stayed, "returned_after_s": back}


def slow_flapping(lab: RouteLab, job: MeshJob) -> dict[str, Any]:
    """Make the direct link slow and fast by turns, every ten seconds."""
    began = time.monotonic()
    before = sum(job.route().get("moves", {}).values())
    for turn in range(12):
        (slow if turn % 2 == 0 else fast)(lab)
        sleep_until(began + 10 * (turn + 1))
    moves = sum(job.route().get("moves", {}).values()) - before
    return {"moves_a_minute": moves / 2}


def _everything(make: Callable[[str], LinkScenario]) -> list[LinkScenario]:
    return [make("auto"), make("warm")]


SCENARIOS: dict[str, LinkScenario] = {
    scenario.name: scenario
    for scenario in (
        LinkScenario("healthy", "auto", 30, nothing),
        *_everything(lambda paths: LinkScenario(f"loss-{paths}", paths, 50, trouble_and_healing(lose, mend, 20))),
        *_everything(lambda paths: LinkScenario(f"cut-{paths}", paths, 45, trouble_and_healing(cut, mend, 14))),
        LinkScenario("cut-there", "auto", 45, trouble_and_healing(cut_forward, mend, 14)),
        LinkScenario("cut-back", "auto", 45, trouble_and_healing(cut_backward, mend, 14)),
        LinkScenario("cut-before", "auto", 40, trouble_and_healing(lambda _: None, mend, 10), before=cut),
        LinkScenario("flapping", "auto", 80, flapping),
        *(LinkScenario(f"relay-{what}", "auto", 30, relay_in_trouble(what)) for what in ("killed", "frozen", "drained")),
        LinkScenario("all-cut", "auto", 50, all_cut, delivery="exactly-once"),
        LinkScenario("thin", "auto", 150, thin, rate=1_000, width=470),
        LinkScenario("thin-relay", "a2", 150, thin, rate=1_000, width=470),
        LinkScenario("stopped-receiver", "auto", 25, stopped_receiver),
        LinkScenario("held-receiver", "auto", 45, held_receiver),
        LinkScenario("chains", "auto", 50, slow_two_hops_away, before=two_chains, all_relay=True),
        LinkScenario("slow-direct", "auto", 80, slow_direct),
        LinkScenario("slow-flapping", "auto", 130, slow_flapping),
    )
}  # fmt: skip
