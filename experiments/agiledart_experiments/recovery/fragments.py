"""Experiment `fragments`: time to rebuild a state from its fragments, by m and k, with the fragment or the state size fixed.

AgileDART, figure 11c and §IV-D: the time is mainly determined by m·B/(m + k - 1). The code that agents run cuts and joins the
fragments. Its stripe plan fetches them from all replica nodes but one, which failed with the owner; links are emulated. The
paper's statement that time falls with m holds for fragments of one size; for a state of one size it grows. Both curves are here.
"""

from agiledart_agent.fragments.erasure_code import cut, joined
from agiledart_experiments.recovery.emulated_links import MEGABIT, Transfer, arrivals, noise
from agiledart_experiments.report import ExperimentReport, Goal, Row, Settings
from agiledart_kernel.instants import Instant
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.observation import ignore
from agiledart_kernel.peer import Peer
from agiledart_kernel.randomness import RandomStream
from agiledart_recovery.fragments.arithmetic import fragment_bytes, transfer_seconds
from agiledart_recovery.fragments.snapshot_rebuild import RebuildState, SnapshotRebuild
from agiledart_recovery.recovery_config import RecoveryConfig
from agiledart_recovery.recovery_context import RecoveryContext
from agiledart_recovery.wire.effects import FetchStripe
from agiledart_recovery.wire.names import CheckpointId, InstanceId, RunId
from agiledart_recovery.wire.register_value import InstanceSnapshot

RAW = (2, 4, 8, 16)
PARITY = (1, 2, 3, 4)
"""Values of m and k. Source: oracle R4 of the specification."""

PAPER = (4_000_000, 64_000_000)
SMALL = (500_000, 4_000_000)
"""Bytes of a fragment when the fragment size is fixed, and of the state when the state size is fixed."""

UPLOAD, DOWNLOAD = 100 * MEGABIT, 10_000 * MEGABIT
"""Bytes a second of a replica node, and of the replacement host, whose downlink must not be the bottleneck."""

DELAY = 0.001
CLOSE = 0.15


def run(settings: Settings) -> ExperimentReport:
    """Run the experiment: return a row for each curve, m and k."""
    fragment, state = PAPER if settings.is_paper else SMALL
    random = RandomStream(settings.seed, "fragments")
    rows: list[Row] = []
    for fixed in ("fragment", "state"):
        for m in RAW:
            settings.progress(f"{m} raw fragments, the {fixed} has a fixed size")
            rows += [_row(fixed, m, k, fragment * m if fixed == "fragment" else state, random) for k in PARITY]
    parameters = {"fragment_bytes": fragment, "state_bytes": state, "upload_mbit": 100, "delay_ms": 1_000 * DELAY}
    notes = (
        "data and its fragments are real, links emulated; one replica node failed with the owner, so m + k - 1 provide",
    )
    return ExperimentReport(parameters, tuple(rows), _goals(rows), notes)


def _row(fixed: str, m: int, k: int, size: int, random: RandomStream) -> Row:
    data = noise(size, random.bits(64), m, k)
    fragments = cut(data, m, m + k)
    lost = random.index(m + k)
    seconds, came, stripes = _fetched(fragments, m, lost, size)
    formula = transfer_seconds(m, fragment_bytes(size, m), m + k - 1, UPLOAD, DOWNLOAD)
    return {
        "fixed": fixed,
        "m": m,
        "k": k,
        "state_bytes": size,
        "seconds": round(seconds, 4),
        "seconds_formula": round(formula, 4),
        "ratio": round(seconds / formula, 4),
        "is_exact": next(joined(came, m, m + k, size)) == data,
        "stripes": stripes,
        "storage": round((m + k) / m, 3),
    }


def _fetched(fragments: list[bytes], m: int, lost: int, size: int) -> tuple[float, list[dict[int, bytes]], int]:
    """Rebuild a state without one replica node; return (seconds, fragments by stripe, number of stripes)."""
    me = Peer(NodeId(1), 1, "here:1")
    replica_nodes = tuple(NodeId(2 + number) for number in range(len(fragments)))
    snapshot = InstanceSnapshot(CheckpointId(1, 1), b"\0" * 32, size, m, replica_nodes)
    live = {replica_node: None for number, replica_node in enumerate(replica_nodes) if number != lost}
    context = RecoveryContext(me, RecoveryConfig(), RandomStream(1, "desk"), ignore)
    context.now = Instant(0)
    rebuild = SnapshotRebuild(context, RunId("job", 1), InstanceId("sums"), snapshot, live)
    asked = [effect for effect in context.effects if isinstance(effect, FetchStripe)]
    transfers = [Transfer(fetch.key.index, fetch.length) for fetch in asked]
    times = arrivals(transfers, UPLOAD, DOWNLOAD, DELAY)
    for when, fetch in sorted(zip(times, asked, strict=True), key=lambda pair: pair[0]):
        piece = fragments[fetch.key.index][fetch.offset : fetch.offset + fetch.length]
        context.answered(fetch.request, piece, "")
        if rebuild.state is RebuildState.READY:
            return when, rebuild.pieces, len(rebuild.pieces)
    raise AssertionError(f"{m} of {len(fragments)} fragments arrived, but the state of the rebuild is {rebuild.state}")


def _goals(rows: list[Row]) -> tuple[Goal, ...]:
    times = {(row["fixed"], row["m"], row["k"]): row["seconds"] for row in rows}
    return (
        Goal("every rebuilt state equals the one that was cut", all(row["is_exact"] for row in rows)),
        Goal("every time within 15 % of m·B/(m + k - 1)", all(abs(row["ratio"] - 1) <= CLOSE for row in rows)),
        Goal(
            "for fixed m the time falls with k",
            all(
                times[fixed, m, k] > times[fixed, m, k + 1]
                for fixed in ("fragment", "state")
                for m in RAW
                for k in PARITY[:-1]
            ),
        ),
        Goal(
            "fragments of one size, k above 1: the time falls with m",
            all(times["fragment", m, k] < times["fragment", 2 * m, k] for m in RAW[:-1] for k in PARITY[1:]),
        ),
        Goal(
            "a state of one size: the time falls as m grows",
            all(times["state", m, k] > times["state", 2 * m, k] for m in RAW[:-1] for k in PARITY),
        ),
    )
