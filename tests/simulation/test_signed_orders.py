"""A8: what was changed, unsigned, signed by who may not, meant for another name, or carried out before is refused by the agent
that is asked, by the scheduler, by each host and by the coordinator, even when all others believe it.
"""

import random
from typing import Any

import msgspec
import pytest

from agiledart_kernel.instants import SECOND
from agiledart_kernel.orders import sign_order, verify_order
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Asker
from agiledart_kernel.randomness import RandomStream
from agiledart_node.node import Node
from agiledart_node.records.order_checks import terms_of
from agiledart_node.wire.commands import Command, Forget, Share, Stop, Submit
from agiledart_node.wire.effects import RefusedRequest, Replied
from agiledart_node.wire.events import Asked
from agiledart_transport.certificates import check_signature
from tests.keys import Authority, key_of, public_of
from tests.simulation.mesh import WALL_MS, Mesh, pipeline, submission

NET = Authority(now=WALL_MS // 1_000)
ALL = ("a1", "a2", "a3", "a4", "a5")


class Signed(Mesh):
    """A mesh in which orders are judged, but by those who lie: they believe what they are told, and tell others."""

    def __init__(self, seed: int, liars: tuple[str, ...] = ()) -> None:
        self.liars = liars
        self.draw = random.Random(seed).randbytes
        self.scheduler = ""
        super().__init__(seed, 5)
        self.build()

    def _make(self, peer: Peer, random: RandomStream) -> Node:
        def verify(raw: bytes) -> Any:
            return verify_order(NET.network, raw, check_signature)

        return Node(peer, self.config, random, verify=None if peer.name in self.liars else verify)

    def order(self, command: Command, holder: str = "ann", role: Any = "submitter", ago: int = 0) -> bytes:
        terms = terms_of(command)
        assert terms is not None
        wall_ms = WALL_MS + self.world.now // 1_000_000 - 1_000 * ago
        return sign_order(key_of(holder).sign, NET.member(holder, role), NET.network, terms, wall_ms, self.draw)

    def outcome(self, at: str, command: Command, order: bytes, asker: str = "ann") -> str:
        """What was refused, or nothing."""
        self._request += 1
        request = self._request
        who = Asker("submitter", "", public_of(asker))
        self.world.inject(self.by_name[at], Asked(request, command, "somebody", who, order))
        assert self.world.run_until(lambda: request in self.answers, 200 * SECOND)
        answer = self.answers[request]
        if isinstance(answer, RefusedRequest):
            return answer.text
        assert isinstance(answer, Replied)
        self.scheduler = str(answer.body.get("scheduler", ""))
        return ""


JOB = submission(pipeline("mine", source_at="a2", sink_at="a5"))
OTHER_CODE = msgspec.structs.replace(JOB, bundle=b"evil")
REFUSED = "This order to submit is refused"


def a_bit_changed(order: bytes) -> bytes:
    return order[:-40] + bytes((order[-40] ^ 1,)) + order[-39:]


def forgeries(mesh: Signed) -> dict[str, tuple[Submit, bytes]]:
    """What is brought as JOB, by how it was forged."""
    good = mesh.order(JOB)
    return {
        "unsigned": (JOB, b""),
        "a bit changed": (JOB, a_bit_changed(good)),
        "other code": (OTHER_CODE, good),
        "another name": (JOB, mesh.order(submission(pipeline("other", source_at="a2", sink_at="a5")))),
        "another key": (JOB, mesh.order(JOB, "bob")),
        "another verb": (JOB, mesh.order(Stop("mine"))),
        "more executors": (msgspec.structs.replace(JOB, executors=4), good),
        "another number": (msgspec.structs.replace(JOB, parallelism={"": 2}), good),
        "old": (JOB, mesh.order(JOB, ago=400)),
        "of the future": (JOB, mesh.order(JOB, ago=-400)),
    }


def test_what_is_signed_is_carried_out_wherever_it_is_asked() -> None:
    mesh = Signed(1)
    assert mesh.outcome("a1", JOB, mesh.order(JOB)) == ""
    told = mesh.status("a3", "mine")
    assert (told["state"], told["owner"]) == ("running", public_of("ann").hex())
    assert told["submitter"] == f"submitter {public_of('ann').hex()[:16]}"
    share = Share("mine", public_of("bob").hex())
    assert mesh.outcome("a4", share, mesh.order(share)) == ""
    stop = Stop("mine", now=True)
    assert mesh.outcome("a4", stop, mesh.order(stop, "bob"), "bob") == ""
    history = [row["text"] for row in mesh.status("a1", "mine")["history"]]
    assert history[-1] == f"stopped by submitter {public_of('bob').hex()[:16]}"


@pytest.fixture(scope="module")
def honest() -> Signed:
    return Signed(2)


@pytest.mark.parametrize("how", forgeries(Signed(2)))
def test_the_agent_that_is_asked_refuses(honest: Signed, how: str) -> None:
    assert REFUSED in honest.outcome("a1", *forgeries(honest)[how])


@pytest.fixture(scope="module")
def liar() -> Signed:
    """a1 believes what it is told, and another one schedules."""
    for seed in range(3, 30):
        mesh = Signed(seed, ("a1",))
        plain = submission(pipeline("plain", source_at="a2", sink_at="a5"))
        assert mesh.outcome("a3", plain, mesh.order(plain)) == ""
        if mesh.scheduler not in ("", "a1"):
            return mesh
    raise AssertionError("a1 schedules in all of them")


@pytest.mark.parametrize("how", [how for how in forgeries(Signed(2)) if how != "of the future"])
def test_the_scheduler_refuses_what_the_agent_let_through(liar: Signed, how: str) -> None:
    assert REFUSED in liar.outcome("a1", *forgeries(liar)[how])
    assert "mine" not in [name for _, name, _ in liar.running]


@pytest.fixture(scope="module")
def alone() -> Signed:
    """Only a5, where the sink runs, looks for itself; it schedules nothing."""
    for seed in range(40, 70):
        mesh = Signed(seed, ALL[:-1])
        plain = submission(pipeline("plain", source_at="a2", sink_at="a5"))
        assert mesh.outcome("a3", plain, mesh.order(plain)) == ""
        if mesh.scheduler not in ("", "a5"):
            return mesh
    raise AssertionError("a5 schedules in all of them")


@pytest.mark.parametrize("how", ["unsigned", "a bit changed", "other code", "another name", "another verb"])
def test_a_host_refuses_what_all_others_believe(alone: Signed, how: str) -> None:
    told = alone.outcome("a1", *forgeries(alone)[how])
    assert REFUSED in told or "is for other code, settings or another name" in told
    assert not running_on_a5(alone)


def running_on_a5(mesh: Signed) -> list[str]:
    return [name for node, name, _ in mesh.running if node == mesh.node("a5") and name != "plain"]


def test_a_host_refuses_the_order_of_who_may_not_submit(alone: Signed) -> None:
    hers = submission(pipeline("hers", source_at="a2", sink_at="a5"))
    told = alone.outcome("a1", hers, alone.order(hers, "rita", "reader"), "rita")
    assert "A reader may not submit" in told
    assert not running_on_a5(alone)


LOOK = msgspec.structs.replace(JOB, dry_run=True)


def loaded(mesh: Signed, order: bytes) -> dict[str, bool]:
    """Host → whether it set out to load the code of a dry run that a1 brings it; what it said instead is about the order."""
    mesh._request += 1
    request = mesh._request
    mesh.world.inject(
        mesh.by_name["a1"], Asked(request, LOOK, "somebody", Asker("submitter", "", public_of("ann")), order)
    )
    assert mesh.world.run_until(lambda: request in mesh.answers, 200 * SECOND)
    answer = mesh.answers[request]
    assert isinstance(answer, Replied), answer
    return {row["node"]: "order to check is refused" not in row["text"] for row in answer.body["checks"]}


def test_a_dry_run_loads_no_code_that_no_user_signed() -> None:
    mesh = Signed(41, ("a1",))
    good = mesh.order(LOOK)
    assert loaded(mesh, good)["a5"]
    for forged in (b"", a_bit_changed(good), mesh.order(JOB), mesh.order(OTHER_CODE), mesh.order(LOOK, ago=400)):
        assert not loaded(mesh, forged)["a5"]
    assert "This order to submit is refused" in mesh.outcome("a3", LOOK, mesh.order(JOB)), "nor the agent that is asked"


def test_an_order_to_look_runs_nothing(alone: Signed) -> None:
    told = alone.outcome("a1", JOB, alone.order(LOOK))
    assert "is for other code, settings or another name" in told
    assert not running_on_a5(alone)


def test_an_order_is_carried_out_once() -> None:
    for liars, refusal in ((), "was carried out before"), (ALL[:-1], "was carried out before"):
        mesh = Signed(50, liars)
        order = mesh.order(JOB)
        assert mesh.outcome("a1", JOB, order) == ""
        stop = Stop("mine", now=True)
        assert mesh.outcome("a2", stop, mesh.order(stop)) == ""
        assert refusal in mesh.outcome("a3", JOB, order)
        assert "This order to forget is refused" in mesh.outcome("a5", Forget("mine"), b"")
        assert mesh.outcome("a2", Forget("mine"), mesh.order(Forget("mine"))) == ""
        assert refusal in mesh.outcome("a3", JOB, order)
        later = mesh.order(JOB)
        assert mesh.outcome("a3", JOB, later) == ""
        assert "is already running" in mesh.outcome("a3", JOB, order)


def test_an_old_order_to_stop_ends_no_later_version() -> None:
    mesh = Signed(60)
    early = mesh.order(Stop("mine", now=True))
    mesh.world.run_for(SECOND)
    assert mesh.outcome("a1", JOB, mesh.order(JOB)) == ""
    assert "was submitted again after this order" in mesh.outcome("a4", Stop("mine", now=True), early)
    assert mesh.status("a1", "mine")["state"] == "running"


def test_a_coordinator_believes_no_agent_that_wants_an_application_to_end() -> None:
    mesh = Signed(70, ("a1",))
    assert mesh.outcome("a2", JOB, mesh.order(JOB)) == ""
    stop = Stop("mine", now=True)
    for order in (b"", mesh.order(Stop("other", now=True)), a_bit_changed(mesh.order(stop))):
        assert "This order to stop is refused" in mesh.outcome("a1", stop, order)
    assert "mine belongs to" in mesh.outcome("a1", stop, mesh.order(stop, "bob"))
    early = mesh.order(stop, ago=100)
    assert "was submitted again after this order" in mesh.outcome("a1", stop, early)
    assert mesh.status("a2", "mine")["state"] == "running"
    assert mesh.outcome("a2", stop, mesh.order(stop)) == ""
