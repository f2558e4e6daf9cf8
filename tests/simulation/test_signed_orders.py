"""A8: every party refuses a command without a valid signature, even when all others accept it.

A command that was changed, unsigned, signed without the right, meant for another name, or carried out before is refused by the
contacted agent, by the scheduler, by each host and by the coordinator.
"""

import random
from typing import Any

import msgspec
import pytest

from agiledart_kernel.instants import SECOND
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Principal
from agiledart_kernel.randomness import RandomStream
from agiledart_kernel.signed_commands import sign_command, verify_command
from agiledart_node.node import Node
from agiledart_node.records.command_verifier import command_terms
from agiledart_node.wire.commands import Command, Forget, ShareApplication, Stop, Submit
from agiledart_node.wire.effects import RefusedRequest, Replied
from agiledart_node.wire.events import UserRequest
from agiledart_transport.certificates import check_signature
from tests.keys import Authority, key_of, public_of
from tests.simulation.mesh import WALL_MS, Mesh, pipeline, submission

NET = Authority(now=WALL_MS // 1_000)
ALL = ("a1", "a2", "a3", "a4", "a5")


class Signed(Mesh):
    """A mesh that verifies commands except at lying nodes: they accept any command, and forward it."""

    def __init__(self, seed: int, liars: tuple[str, ...] = ()) -> None:
        self.liars = liars
        self.draw = random.Random(seed).randbytes
        self.scheduler = ""
        super().__init__(seed, 5)
        self.build()

    def _make(self, peer: Peer, random: RandomStream) -> Node:
        def verify(raw: bytes) -> Any:
            return verify_command(NET.network, raw, check_signature)

        return Node(peer, self.config, random, verify=None if peer.name in self.liars else verify)

    def signed_command(self, command: Command, holder: str = "ann", role: Any = "submitter", ago: int = 0) -> bytes:
        terms = command_terms(command)
        assert terms is not None
        wall_ms = WALL_MS + self.world.now // 1_000_000 - 1_000 * ago
        return sign_command(key_of(holder).sign, NET.member(holder, role), NET.network, terms, wall_ms, self.draw)

    def outcome(self, at: str, command: Command, signed_command: bytes, principal: str = "ann") -> str:
        """The refusal, or nothing."""
        self._request += 1
        request = self._request
        who = Principal("submitter", "", public_of(principal))
        self.world.inject(self.by_name[at], UserRequest(request, command, "somebody", who, signed_command))
        assert self.world.run_until(lambda: request in self.answers, 200 * SECOND)
        answer = self.answers[request]
        if isinstance(answer, RefusedRequest):
            return answer.text
        assert isinstance(answer, Replied)
        self.scheduler = str(answer.body.get("scheduler", ""))
        return ""


JOB = submission(pipeline("mine", source_at="a2", sink_at="a5"))
OTHER_CODE = msgspec.structs.replace(JOB, bundle=b"evil")
REFUSED = "This command to submit is refused"


def a_bit_changed(signed_command: bytes) -> bytes:
    return signed_command[:-40] + bytes((signed_command[-40] ^ 1,)) + signed_command[-39:]


def forgeries(mesh: Signed) -> dict[str, tuple[Submit, bytes]]:
    """Forged commands sent as JOB, by kind of forgery."""
    good = mesh.signed_command(JOB)
    return {
        "unsigned": (JOB, b""),
        "a bit changed": (JOB, a_bit_changed(good)),
        "other code": (OTHER_CODE, good),
        "another name": (JOB, mesh.signed_command(submission(pipeline("other", source_at="a2", sink_at="a5")))),
        "another key": (JOB, mesh.signed_command(JOB, "bob")),
        "another verb": (JOB, mesh.signed_command(Stop("mine"))),
        "more executors": (msgspec.structs.replace(JOB, executors=4), good),
        "another number": (msgspec.structs.replace(JOB, parallelism={"": 2}), good),
        "old": (JOB, mesh.signed_command(JOB, ago=400)),
        "of the future": (JOB, mesh.signed_command(JOB, ago=-400)),
    }


def test_a_signed_command_is_carried_out_at_any_agent() -> None:
    mesh = Signed(1)
    assert mesh.outcome("a1", JOB, mesh.signed_command(JOB)) == ""
    told = mesh.status("a3", "mine")
    assert (told["state"], told["owner"]) == ("running", public_of("ann").hex())
    assert told["submitter"] == f"submitter {public_of('ann').hex()[:16]}"
    share = ShareApplication("mine", public_of("bob").hex())
    assert mesh.outcome("a4", share, mesh.signed_command(share)) == ""
    stop = Stop("mine", now=True)
    assert mesh.outcome("a4", stop, mesh.signed_command(stop, "bob"), "bob") == ""
    history = [row["text"] for row in mesh.status("a1", "mine")["history"]]
    assert history[-1] == f"stopped by submitter {public_of('bob').hex()[:16]}"


@pytest.fixture(scope="module")
def honest() -> Signed:
    return Signed(2)


@pytest.mark.parametrize("how", forgeries(Signed(2)))
def test_the_contacted_agent_refuses_an_unauthorised_command(honest: Signed, how: str) -> None:
    assert REFUSED in honest.outcome("a1", *forgeries(honest)[how])


@pytest.fixture(scope="module")
def liar() -> Signed:
    """a1 accepts any command, and another node schedules."""
    for seed in range(3, 30):
        mesh = Signed(seed, ("a1",))
        plain = submission(pipeline("plain", source_at="a2", sink_at="a5"))
        assert mesh.outcome("a3", plain, mesh.signed_command(plain)) == ""
        if mesh.scheduler not in ("", "a1"):
            return mesh
    raise AssertionError("a1 schedules in all of them")


@pytest.mark.parametrize("how", [how for how in forgeries(Signed(2)) if how != "of the future"])
def test_the_scheduler_refuses_a_command_that_the_agent_let_through(liar: Signed, how: str) -> None:
    assert REFUSED in liar.outcome("a1", *forgeries(liar)[how])
    assert "mine" not in [name for _, name, _ in liar.running]


@pytest.fixture(scope="module")
def alone() -> Signed:
    """Only a5, where the sink runs, looks for itself; it schedules nothing."""
    for seed in range(40, 70):
        mesh = Signed(seed, ALL[:-1])
        plain = submission(pipeline("plain", source_at="a2", sink_at="a5"))
        assert mesh.outcome("a3", plain, mesh.signed_command(plain)) == ""
        if mesh.scheduler not in ("", "a5"):
            return mesh
    raise AssertionError("a5 schedules in all of them")


@pytest.mark.parametrize("how", ["unsigned", "a bit changed", "other code", "another name", "another verb"])
def test_a_host_refuses_a_command_that_all_other_nodes_accept(alone: Signed, how: str) -> None:
    told = alone.outcome("a1", *forgeries(alone)[how])
    assert REFUSED in told or "is for other code, settings or another name" in told
    assert not running_on_a5(alone)


def running_on_a5(mesh: Signed) -> list[str]:
    return [name for node, name, _ in mesh.running if node == mesh.node("a5") and name != "plain"]


def test_a_host_refuses_the_submission_of_an_unauthorised_user(alone: Signed) -> None:
    hers = submission(pipeline("hers", source_at="a2", sink_at="a5"))
    told = alone.outcome("a1", hers, alone.signed_command(hers, "rita", "reader"), "rita")
    assert "A reader may not submit" in told
    assert not running_on_a5(alone)


LOOK = msgspec.structs.replace(JOB, dry_run=True)


def loaded(mesh: Signed, signed_command: bytes) -> dict[str, bool]:
    """Host → whether it set out to load the code of a dry run that a1 brings it; otherwise its answer is about the command."""
    mesh._request += 1
    request = mesh._request
    mesh.world.inject(
        mesh.by_name["a1"],
        UserRequest(request, LOOK, "somebody", Principal("submitter", "", public_of("ann")), signed_command),
    )
    assert mesh.world.run_until(lambda: request in mesh.answers, 200 * SECOND)
    answer = mesh.answers[request]
    assert isinstance(answer, Replied), answer
    return {row["node"]: "command to check is refused" not in row["text"] for row in answer.body["checks"]}


def test_a_dry_run_loads_no_unsigned_code() -> None:
    mesh = Signed(41, ("a1",))
    good = mesh.signed_command(LOOK)
    assert loaded(mesh, good)["a5"]
    for forged in (
        b"",
        a_bit_changed(good),
        mesh.signed_command(JOB),
        mesh.signed_command(OTHER_CODE),
        mesh.signed_command(LOOK, ago=400),
    ):
        assert not loaded(mesh, forged)["a5"]
    assert "This command to submit is refused" in mesh.outcome("a3", LOOK, mesh.signed_command(JOB)), (
        "nor the agent that is asked"
    )


def test_a_dry_run_command_runs_nothing(alone: Signed) -> None:
    told = alone.outcome("a1", JOB, alone.signed_command(LOOK))
    assert "is for other code, settings or another name" in told
    assert not running_on_a5(alone)


def test_a_signed_command_is_carried_out_once() -> None:
    for liars, refusal in ((), "was carried out before"), (ALL[:-1], "was carried out before"):
        mesh = Signed(50, liars)
        signed_command = mesh.signed_command(JOB)
        assert mesh.outcome("a1", JOB, signed_command) == ""
        stop = Stop("mine", now=True)
        assert mesh.outcome("a2", stop, mesh.signed_command(stop)) == ""
        assert refusal in mesh.outcome("a3", JOB, signed_command)
        assert "This command to forget is refused" in mesh.outcome("a5", Forget("mine"), b"")
        assert mesh.outcome("a2", Forget("mine"), mesh.signed_command(Forget("mine"))) == ""
        assert refusal in mesh.outcome("a3", JOB, signed_command)
        later = mesh.signed_command(JOB)
        assert mesh.outcome("a3", JOB, later) == ""
        assert "is already running" in mesh.outcome("a3", JOB, signed_command)


def test_an_old_stop_command_ends_no_later_version() -> None:
    mesh = Signed(60)
    early = mesh.signed_command(Stop("mine", now=True))
    mesh.world.run_for(SECOND)
    assert mesh.outcome("a1", JOB, mesh.signed_command(JOB)) == ""
    assert "was submitted again after this command" in mesh.outcome("a4", Stop("mine", now=True), early)
    assert mesh.status("a1", "mine")["state"] == "running"


def test_a_coordinator_ends_no_application_on_an_agents_unsigned_request() -> None:
    mesh = Signed(70, ("a1",))
    assert mesh.outcome("a2", JOB, mesh.signed_command(JOB)) == ""
    stop = Stop("mine", now=True)
    for signed_command in (b"", mesh.signed_command(Stop("other", now=True)), a_bit_changed(mesh.signed_command(stop))):
        assert "This command to stop is refused" in mesh.outcome("a1", stop, signed_command)
    assert "mine belongs to" in mesh.outcome("a1", stop, mesh.signed_command(stop, "bob"))
    early = mesh.signed_command(stop, ago=100)
    assert "was submitted again after this command" in mesh.outcome("a1", stop, early)
    assert mesh.status("a2", "mine")["state"] == "running"
    assert mesh.outcome("a2", stop, mesh.signed_command(stop)) == ""
