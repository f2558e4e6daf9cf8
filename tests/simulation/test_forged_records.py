"""Records that an agent writes by itself: unsigned rights are void, and no run ends without a user's signed command.

a1 is the agent that lies: it writes what it likes. Everybody else reads with the same eyes, so a2 to a5 are asked.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from agiledart_kernel.instants import SECOND
from agiledart_kernel.machine import Effect
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.signed_commands import sign_command
from agiledart_node.forming import planner
from agiledart_node.handlers.command_handlers import CommandHandlers
from agiledart_node.hosting import application_watcher
from agiledart_node.records.application import FAILED, STOPPED, ApplicationRecord
from agiledart_node.records.command_verifier import command_terms
from agiledart_node.records.signed_entries import merged_signed_entries, signed_entries_for, with_signed_entry
from agiledart_node.records.sink_directory import FindSink, RegisterSink, SinkFound, SinkRecord
from agiledart_node.wire.application_responses import ShareResponse
from agiledart_node.wire.commands import Command, Forget, ShareApplication, Stop
from tests.keys import key_of, public_of
from tests.simulation.mesh import WALL_MS, pipeline, submission
from tests.simulation.test_signed_orders import NET, Signed

JOB = submission(pipeline("mine", source_at="a2", sink_at="a5"))
STOP = Stop("mine", now=True)
BOB = public_of("bob")
Changed = Callable[[ApplicationRecord], ApplicationRecord]


def a_mesh(seed: int) -> Signed:
    """Ann's application runs, coordinated by one that does not lie."""
    mesh = Signed(seed, ("a1",))
    assert mesh.outcome("a3", JOB, mesh.signed_command(JOB)) == ""
    return mesh


def forge(mesh: Signed, monkeypatch: pytest.MonkeyPatch, changed: Changed, version: int = 1) -> None:
    """a1 writes a record of `mine` as it likes."""

    async def write(liar: Any, request: int) -> None:
        record = await liar._records.change("mine", version, changed)
        assert record is not None
        liar._context.reply(request, ShareResponse(record.name, record.version, record.owner, record.shared))

    with monkeypatch.context() as patch:
        patch.setattr(
            CommandHandlers,
            "_handling",
            lambda users, event: write(users._admin_commands[ShareApplication].__self__, event.request),
        )
        assert mesh.outcome("a1", ShareApplication("mine", "00"), b"") == ""


def said(**fields: Any) -> Changed:
    return lambda record: msgspec.structs.replace(record, **fields)


def given(mesh: Signed, command: Command, holder: str, role: str = "submitter") -> Changed:
    """Writes a command of this user among the signed entries, as if it were valid."""
    raw = mesh.signed_command(command, holder, role)
    return lambda record: msgspec.structs.replace(record, signed_entries=with_signed_entry(record.signed_entries, raw))


def refusal(mesh: Signed, command: Command, holder: str, at: str = "a4") -> str:
    return mesh.outcome(at, command, mesh.signed_command(command, holder), holder)


def test_an_unsigned_owner_owns_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = a_mesh(81)
    forge(mesh, monkeypatch, said(owner_key=BOB))
    assert mesh.status("a2", "mine")["owner"] == ""
    assert "mine belongs to no key that is known" in refusal(mesh, STOP, "bob")
    share = ShareApplication("mine", public_of("eve").hex())
    assert "mine belongs to no key that is known" in refusal(mesh, share, "bob")
    forge(mesh, monkeypatch, said(owner_key=public_of("ann")))
    assert refusal(mesh, STOP, "ann") == ""


def test_a_command_for_another_purpose_makes_no_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = a_mesh(82)
    other = submission(pipeline("other", source_at="a2", sink_at="a5"))
    for command in (other, ShareApplication("mine", BOB.hex()), STOP):
        forge(mesh, monkeypatch, given(mesh, command, "bob"))
    forge(mesh, monkeypatch, said(owner_key=BOB))
    assert mesh.status("a2", "mine")["owner"] == ""


def test_a_share_that_its_owner_has_not_signed_is_void(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = a_mesh(83)
    forge(mesh, monkeypatch, said(shared_keys=(BOB,)))
    assert "mine belongs to the key" in refusal(mesh, STOP, "bob")
    forge(mesh, monkeypatch, given(mesh, ShareApplication("mine", BOB.hex()), "bob"))  # he gives it to himself
    forge(mesh, monkeypatch, given(mesh, ShareApplication("other", BOB.hex()), "ann"))
    assert mesh.status("a2", "mine")["shared"] == []
    assert "mine belongs to the key" in refusal(mesh, STOP, "bob")
    assert refusal(mesh, ShareApplication("mine", BOB.hex()), "ann", "a3") == ""
    forge(
        mesh, monkeypatch, given(mesh, ShareApplication("mine", BOB.hex(), revoke=True), "eve")
    )  # nor does a stranger take it back
    forge(mesh, monkeypatch, said(shared_keys=()))
    assert mesh.status("a2", "mine")["shared"] == [BOB.hex()]
    assert refusal(mesh, STOP, "bob") == ""


def test_a_share_lasts_until_it_is_revoked_also_over_versions() -> None:
    mesh = a_mesh(84)
    bobs = ShareApplication("mine", BOB.hex())
    assert refusal(mesh, bobs, "ann") == ""
    assert refusal(mesh, STOP, "ann") == ""
    assert refusal(mesh, JOB, "bob") == ""  # the second version is his, and the application hers
    told = mesh.status("a2", "mine")
    assert (told["version"], told["owner"], told["shared"]) == (2, public_of("ann").hex(), [BOB.hex()])
    assert told["submitter"].endswith(BOB.hex()[:16])
    mesh.world.run_for(SECOND)
    assert refusal(mesh, ShareApplication("mine", BOB.hex(), revoke=True), "ann") == ""
    assert "mine belongs to the key" in refusal(mesh, STOP, "bob")
    assert refusal(mesh, STOP, "ann") == ""
    assert refusal(mesh, Forget("mine"), "ann") == ""
    assert refusal(mesh, JOB, "bob") == ""
    told = mesh.status("a2", "mine")
    assert (told["owner"], told["shared"]) == (BOB.hex(), [])


@pytest.mark.parametrize("by", ["nobody", "a stranger", "a share that is none", "an order from before"])
def test_without_a_users_stop_command_a_run_continues(monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    mesh = a_mesh(85)
    signed_entries: tuple[bytes, ...] = ()
    if by == "a stranger":
        signed_entries = (mesh.signed_command(STOP, "bob"),)
    elif by == "a share that is none":
        signed_entries = (
            mesh.signed_command(STOP, "bob"),
            mesh.signed_command(ShareApplication("mine", BOB.hex()), "bob"),
        )
    elif by == "an order from before":
        signed_entries = (mesh.signed_command(STOP, ago=200),)
    forge(mesh, monkeypatch, said(state=STOPPED, reason="stopped by ann", stopping=True, signed_entries=signed_entries))
    mesh.world.run_for(30 * SECOND)
    assert mesh.status("a4", "mine")["state"] == "running"
    assert {"a2", "a5"} <= set(mesh.hosts("mine"))
    assert not mesh.status("a4", "mine")["is_stopping"]
    assert refusal(mesh, STOP, "ann") == ""
    mesh.world.run_for(5 * SECOND)
    assert mesh.hosts("mine") == []
    told = mesh.status("a4", "mine")
    assert (told["state"], told["is_unverified"]) == ("stopped", False)


def test_an_unsigned_drain_request_drains_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = a_mesh(86)
    forge(mesh, monkeypatch, said(stopping=True))
    assert not mesh.status("a4", "mine")["is_stopping"]
    mesh.finish("mine", 1)
    mesh.world.run_for(10 * SECOND)
    assert mesh.status("a4", "mine")["state"] == "finished"  # not `stopped by a user`


def test_a_stop_through_an_older_coordinator_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = a_mesh(89)
    monkeypatch.setattr(application_watcher, "with_stop", lambda record, raw: record)  # it keeps no order
    assert refusal(mesh, STOP, "ann") == ""
    told = mesh.status("a2", "mine")
    assert (told["state"], told["is_unverified"]) == ("stopped", False)


def test_an_observation_of_an_agent_needs_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = a_mesh(87)
    forge(mesh, monkeypatch, said(state=FAILED, reason="a5 is gone"))
    mesh.world.run_for(30 * SECOND)
    assert mesh.status("a4", "mine")["state"] == "failed"


def test_a_scheduler_transfers_a_run_to_no_other_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler that lies says that bob's run is ann's, so that it may write ann's logs: hosts ask for her order."""
    for seed in range(88, 110):
        mesh = a_mesh(seed)
        if mesh.scheduler == "a1":
            break
    hers = mesh.signed_command(JOB)
    bobs = submission(pipeline("mine2", source_at="a2", sink_at="a5"))
    old = mesh.signed_command(submission(pipeline("mine2", source_at="a3", sink_at="a5")))
    whole = planner.Planner.deployment
    for signed_entries, text in (
        ((), "no signature shows that mine2 belongs to the key"),
        ((hers,), "no signature shows that mine2 belongs to the key"),
        ((old,), "mine2 belongs to the key"),  # it was hers once, and she has not shared it
        ((old, mesh.signed_command(ShareApplication("mine2", BOB.hex()), "bob")), "mine2 belongs to the key"),
    ):

        def runs_on_disk(self: Any, *about: Any, signed_entries: tuple[bytes, ...] = signed_entries) -> Any:
            made = whole(self, *about)
            made.owner, made.signed_entries = public_of("ann"), signed_entries
            return made

        with monkeypatch.context() as patch:
            patch.setattr(planner.Planner, "deployment", runs_on_disk)
            assert text in refusal(mesh, bobs, "bob", "a1")
        assert [app for _, app, _ in mesh.running if app == "mine2"] == []
    good = (old, mesh.signed_command(ShareApplication("mine2", BOB.hex())))
    monkeypatch.setattr(planner.Planner, "deployment", lambda self, *about: _owned(whole(self, *about), good))
    assert refusal(mesh, bobs, "bob", "a1") == ""


def _owned(made: Any, signed_entries: tuple[bytes, ...]) -> Any:
    made.owner, made.signed_entries = public_of("ann"), signed_entries
    return made


def test_a_logs_owner_is_signed_by_the_owner() -> None:
    found: dict[int, SinkFound] = {}

    class Watched(Signed):
        def _on_effect(self, peer: Peer, effect: Effect) -> None:
            if isinstance(effect, SinkFound):
                found[effect.request] = effect
            super()._on_effect(peer, effect)

    mesh = Watched(111)
    for number, (ownership_proof, is_signed) in enumerate(
        [
            (mesh.signed_command(JOB), True),
            (mesh.signed_command(JOB, "bob"), False),
            (mesh.signed_command(STOP), False),
            (b"", False),
            (b"x", False),
        ]
    ):
        name, me = f"log{number}", mesh.machine("a1").me
        record = SinkRecord(name, "mine", 1, me, 1, "", b"", 1, public_of("ann"), ownership_proof)
        mesh.world.inject(me.node, RegisterSink(record))
        mesh.world.run_for(2 * SECOND)
        mesh.world.inject(mesh.by_name["a3"], FindSink(number, name))
        assert mesh.world.run_until(lambda number=number: number in found, 10 * SECOND)
        assert (found[number].record, found[number].is_signed) == (record, is_signed)


# ---- what is kept, without a mesh


def signed_command(command: Command, holder: str, at: int = 0) -> bytes:
    terms = command_terms(command)
    assert terms is not None
    return sign_command(key_of(holder).sign, NET.member(holder, "submitter"), NET.network, terms, WALL_MS + at, bytes)


def test_of_signed_entries_of_one_kind_the_latest_is_kept() -> None:
    first, taken, again = (
        signed_command(ShareApplication("mine", BOB.hex(), revoke=at == 1), "ann", at) for at in range(3)
    )
    eves = signed_command(ShareApplication("mine", BOB.hex(), revoke=True), "eve", 9)
    assert with_signed_entry(with_signed_entry((), first), taken) == (taken,)
    assert with_signed_entry(with_signed_entry((), taken), first) == (taken,)
    assert set(merged_signed_entries((first, eves), (taken, again))) == {again, eves}
    assert merged_signed_entries((again, eves), (eves, taken)) == merged_signed_entries((eves, taken), (again, eves))
    assert with_signed_entry((b"no order",), again) == (again,)


def test_signed_entries_are_bounded_and_ownership_proofs_stay() -> None:
    ownership_proof = signed_command(JOB, "ann")
    signed_entries: tuple[bytes, ...] = (ownership_proof,)
    for number in range(60):
        signed_entries = with_signed_entry(
            signed_entries,
            signed_command(ShareApplication("mine", f"{number:064x}", revoke=number % 2 == 0), "ann", number),
        )
    assert len(signed_entries) == 48
    assert ownership_proof in signed_entries


def test_an_owners_own_run_needs_no_signed_entry() -> None:
    record = a_record(signed_command(JOB, "ann"))
    assert signed_entries_for(record, public_of("ann")) == ()
    share = signed_command(ShareApplication("mine", BOB.hex()), "ann", 1)
    shared = msgspec.structs.replace(record, signed_entries=(share,))
    assert signed_entries_for(shared, BOB) == (record.signed_command, share)
    assert signed_entries_for(shared, public_of("eve")) == (record.signed_command,)


def a_record(raw: bytes) -> ApplicationRecord:
    me = Peer(NodeId(1), 1, "a1")
    return ApplicationRecord("mine", 1, 1, 1, "running", me, owner_key=public_of("ann"), signed_command=raw)
