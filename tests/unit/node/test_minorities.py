"""A side of a partition that works on without the majority of its voters reports it on request."""

import msgspec

from agiledart_dataflow.plan.deployment import InstancePlace
from agiledart_kernel.instants import SECOND
from agiledart_kernel.peer import Peer
from agiledart_node.records.application import ApplicationRecord
from agiledart_node.recovery.run_status import minority_status
from agiledart_node.user_commands.status_queries import _knows_more, _row_without_coordinator, with_status
from agiledart_node.wire.application_responses import ApplicationRow
from agiledart_node.wire.recovery_messages import QueryRecovery, RecoveryStatus
from agiledart_recovery.wire import events
from agiledart_recovery.wire.names import Voter
from tests.unit.node.test_node import ME, SCHEDULER, STRANGER
from tests.unit.node.test_stage_changes import RUN, InLife

VOTERS = (Voter(ME, 1), Voter(SCHEDULER, 7), Voter(STRANGER, 8))


class Isle(InLife):
    """All of the run is here; two of its three voters are not."""

    def __init__(self) -> None:
        super().__init__()
        part = self.node.recovery_service.machine.participants[RUN]
        here = tuple(msgspec.structs.replace(each, host=ME) for each in self.value.plan.assignments)
        plan = msgspec.structs.replace(self.value.plan, assignments=here)
        part.value = msgspec.structs.replace(self.value, voters=VOTERS, plan=plan)

    def lose(self, *peers: Peer) -> None:
        for peer in peers:
            self.node.recovery_service.step(events.HostLost(peer.node))

    def standing(self) -> RecoveryStatus:
        self.take()
        self.hear(STRANGER, QueryRecovery(3, RUN.app, RUN.version))
        (answer,) = (told for told in self.told(STRANGER) if isinstance(told, RecoveryStatus))
        return answer


def test_a_host_of_a_whole_path_without_voter_majority_is_a_minority_partition() -> None:
    bench = Isle()
    assert bench.standing().epoch == {}, "it coordinates nothing"
    bench.lose(SCHEDULER)
    assert bench.standing().recovery == {}, "two of three are a majority"
    bench.lose(STRANGER)
    bench.now += 12 * SECOND
    told = bench.standing()
    assert (told.recovery["phase"], told.recovery["waits_for"]) == ("minority", ["sch", STRANGER.node.short])
    assert told.recovery["reason"].startswith("2 of 3 voters of its register are not reached, so nothing is committed")
    assert "checkpoint recover app --without sch" in told.recovery["remedy"]
    assert 12 <= told.recovery["seconds"] < 13, "since the last commit, or since the life was entered"
    assert (told.epoch["attempt"], told.epoch["age_s"]) == (1, told.recovery["seconds"])
    bench.node.recovery_service.step(events.HostBack(SCHEDULER))
    assert bench.standing().recovery == {}, "they have met again"


def test_a_host_without_a_complete_path_only_waits() -> None:
    bench = Isle()
    part = bench.node.recovery_service.machine.participants[RUN]
    assert part.value is not None
    part.value = msgspec.structs.replace(part.value, plan=bench.value.plan)
    bench.lose(SCHEDULER, STRANGER)
    assert bench.standing().recovery == {}, "its source and its sink are elsewhere"


def test_a_side_that_commits_or_waits_for_hosts_outranks_a_minority_partition() -> None:
    def answer(phase: str, age: float | None = 1.0) -> RecoveryStatus:
        return RecoveryStatus(1, {"phase": phase} if phase else {}, {"attempt": 3, "committed": 7, "age_s": age})

    runs, waits, alone = answer(""), answer("waiting"), answer("minority")
    assert _knows_more(runs, alone)
    assert _knows_more(waits, alone)
    assert not _knows_more(alone, waits)
    assert _knows_more(alone, answer("minority", None)), "a host that saw a commit knows for how long there was none"


def test_the_displayed_state_is_minority_partition() -> None:
    bench = Isle()
    bench.lose(SCHEDULER, STRANGER)
    row = ApplicationRow("app", 1, "running", "", "", "", 0, 0, 0, False, 0.0, {}, "", [])
    shown = with_status(row, bench.standing())
    assert (shown.state, shown.recovery and shown.recovery.phase) == ("minority", "minority")
    assert with_status(msgspec.structs.replace(row, state="failed"), bench.standing()).state == "failed"


def test_without_reports_the_state_is_unknown() -> None:
    assert minority_status(None, None, 0, lambda node: False, str) is None  # type: ignore[arg-type]


def test_a_lost_coordinator_that_hosts_nothing_leaves_its_run_running() -> None:
    row = ApplicationRow("app", 1, "running", "", "", "", 0, 0, 0, False, 0.0, {}, "", [])
    record = ApplicationRecord(
        "app", 1, 7, 7, "running", ME, nodes=(ME,), guards=(STRANGER,), assignment=(InstancePlace(0, 0, 0),)
    )
    guard_lost = with_status(row, _row_without_coordinator(record, [STRANGER]))
    assert guard_lost.recovery is not None
    assert (guard_lost.state, guard_lost.recovery.phase) == ("running", "takeover")
    host_lost = with_status(row, _row_without_coordinator(record, [STRANGER, ME]))
    assert host_lost.recovery is not None
    assert (host_lost.state, host_lost.recovery.phase) == ("recovering", "waiting")
