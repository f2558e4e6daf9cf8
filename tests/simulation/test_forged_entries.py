"""Signed entries that an agent forges or takes from elsewhere: none takes the place of one that counts, however records
come together.
"""

import msgspec
import pytest

from agiledart_kernel.instants import SECOND
from agiledart_kernel.permissions import Principal
from agiledart_kernel.signed_commands import parse_signed_command, signer_of, verify_command
from agiledart_node.records.application import RECORD_CODEC, RUNNING, STOPPED, application_key
from agiledart_node.records.merged_applications import applications
from agiledart_node.records.record_kind import merge_of
from agiledart_node.records.signatures import Signatures
from agiledart_node.records.signed_entries import inherited_entries, without_unproven_rights
from agiledart_node.wire.commands import Forget, ShareApplication, Stop
from agiledart_node.wire.events import UserRequest
from agiledart_transport.certificates import check_signature
from tests.keys import public_of
from tests.simulation.mesh import pipeline, submission
from tests.simulation.test_forged_records import BOB, JOB, STOP, a_mesh, a_record, forge, refusal, said, signed_command
from tests.simulation.test_signed_orders import NET

ANN = public_of("ann")
OTHER = submission(pipeline("mine", source_at="a3", sink_at="a5"))
SHARE = ShareApplication("mine", BOB.hex())


def forged(raw: bytes, wall_ms: int = 2**52) -> bytes:
    """As if the giver of this order had given it at another time: the signature does not cover that."""
    body, signature, chain = msgspec.msgpack.decode(raw)
    words = msgspec.msgpack.decode(body)
    words[2] = wall_ms
    changed = msgspec.msgpack.encode([msgspec.msgpack.encode(words), bytes(len(signature)), chain])
    assert (parse_signed_command(changed).wall_ms, signer_of(changed)) == (wall_ms, signer_of(raw))
    return changed


def signatures() -> Signatures:
    return Signatures(lambda raw: verify_command(NET.network, raw, check_signature))


# ---- what is written


def test_a_forged_share_does_not_prevent_the_owner_from_sharing(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = a_mesh(121)
    forge(
        mesh,
        monkeypatch,
        said(signed_entries=(forged(mesh.signed_command(SHARE)), forged(mesh.signed_command(JOB), 0))),
    )
    assert refusal(mesh, SHARE, "ann", "a3") == ""
    assert mesh.status("a2", "mine")["shared"] == [BOB.hex()]
    assert refusal(mesh, STOP, "ann") == ""
    assert refusal(mesh, JOB, "bob") == ""
    told = mesh.status("a2", "mine")
    assert (told["version"], told["owner"], told["shared"]) == (2, ANN.hex(), [BOB.hex()])


@pytest.mark.parametrize("command", [STOP, Stop("mine")])
def test_a_forged_stop_does_not_prevent_the_owner_from_stopping(monkeypatch: pytest.MonkeyPatch, command: Stop) -> None:
    mesh = a_mesh(122)
    elsewhere = mesh.signed_command(Stop("other", now=True), ago=-60)  # hers, but about something else
    forge(mesh, monkeypatch, said(signed_entries=(forged(mesh.signed_command(command)), elsewhere)))
    if command.now:
        assert refusal(mesh, command, "ann") == ""
        told = mesh.status("a4", "mine")
        assert (told["state"], told["is_unverified"]) == ("stopped", False)
        return
    mesh._request += 1
    asked = UserRequest(
        mesh._request, command, "somebody", Principal("submitter", "", ANN), mesh.signed_command(command)
    )
    mesh.world.inject(mesh.by_name["a4"], asked)
    assert mesh.world.run_until(lambda: mesh.status("a3", "mine")["is_stopping"], 30 * SECOND)


def test_a_forged_submission_does_not_prevent_stopping_and_submitting(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = a_mesh(123)
    ownership_proof = mesh.signed_command(JOB, ago=200)
    forge(mesh, monkeypatch, said(signed_command=forged(mesh.signed_command(JOB)), signed_entries=(ownership_proof,)))
    assert refusal(mesh, STOP, "ann") == ""
    assert refusal(mesh, JOB, "ann", "a3") == ""
    assert refusal(mesh, STOP, "ann") == ""
    for version, unfit in ((2, forged(mesh.signed_command(JOB))), (3, b"no order")):
        assert refusal(mesh, Forget("mine"), "ann") == ""
        forge(mesh, monkeypatch, said(signed_command=unfit), version)
        assert refusal(mesh, JOB, "ann", "a3") == ""
        assert refusal(mesh, STOP, "ann") == ""


# ---- a command for an earlier version


def test_an_old_stop_command_ends_no_later_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """a1 has kept what began and ended an earlier version; with the same settings, or others."""
    mesh = a_mesh(124)
    stop = mesh.signed_command(STOP, ago=200)
    for old in (
        mesh.signed_command(JOB, ago=280),
        mesh.signed_command(OTHER, ago=280),
        forged(mesh.signed_command(JOB), 0),
        b"",
    ):
        forge(
            mesh,
            monkeypatch,
            said(state=STOPPED, reason="stopped by ann", stopping=True, signed_command=old, signed_entries=(stop,)),
        )
        mesh.world.run_for(30 * SECOND)
        told = mesh.status("a4", "mine")
        assert (told["state"], told["is_stopping"], told["owner"]) == ("running", False, ANN.hex())
        assert {"a2", "a5"} <= set(mesh.hosts("mine"))
    assert refusal(mesh, STOP, "ann") == ""
    mesh.world.run_for(5 * SECOND)
    told = mesh.status("a4", "mine")
    assert (told["state"], told["is_unverified"], mesh.hosts("mine")) == ("stopped", False, [])


def test_an_old_drain_request_drains_no_later_version(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = a_mesh(125)
    wish = mesh.signed_command(Stop("mine"), ago=200)
    forge(
        mesh, monkeypatch, said(stopping=True, signed_command=mesh.signed_command(JOB, ago=280), signed_entries=(wish,))
    )
    mesh.finish("mine", 1)
    mesh.world.run_for(10 * SECOND)
    assert mesh.status("a4", "mine")["state"] == "finished"  # not `stopped by a user`


# ---- without a mesh


def test_a_command_for_other_settings_reveals_nothing_to_a_reader() -> None:
    known = signatures().verified
    begun, other, stop = signed_command(JOB, "ann"), signed_command(OTHER, "ann"), signed_command(STOP, "ann", 5)
    record = msgspec.structs.replace(
        a_record(begun), specification=JOB.specification, state=STOPPED, signed_entries=(stop,)
    )
    assert without_unproven_rights(record, known, known) is record
    for unfit in (other, forged(begun, 0), signed_command(STOP, "ann"), b"", b"x"):
        read = without_unproven_rights(
            msgspec.structs.replace(record, signed_command=unfit, signed_entries=(begun, stop)), known, known
        )
        assert (read.is_unverified, read.owner_key, read.signed_command) == (True, ANN, b"")


def test_the_next_version_inherits_no_forged_ownership_proof() -> None:
    known = signatures().verified
    ownership_proof, share = signed_command(JOB, "ann"), signed_command(SHARE, "ann", 5)
    record = msgspec.structs.replace(
        a_record(ownership_proof),
        specification=JOB.specification,
        signed_entries=(forged(ownership_proof, 0), forged(share), share),
    )
    assert set(inherited_entries(without_unproven_rights(record, known, known))) == {ownership_proof, share}


@pytest.mark.parametrize("swapped", [False, True])
def test_a_merge_of_copies_lets_no_forged_entry_displace_a_valid_one(swapped: bool) -> None:
    ownership_proof, share = signed_command(JOB, "ann"), signed_command(SHARE, "ann", 5)
    crowd = tuple(
        signed_command(ShareApplication("other", f"{number:064x}"), "ann", 100 + number) for number in range(46)
    )
    ours = msgspec.structs.replace(a_record(ownership_proof), state=RUNNING, signed_entries=(share,))
    theirs = msgspec.structs.replace(ours, reason="x", signed_entries=(forged(share), *crowd))
    merge = merge_of((applications(signatures().verified),))
    first, second = (RECORD_CODEC.encode(one) for one in ((theirs, ours) if swapped else (ours, theirs)))
    value = merge(application_key("mine"), first, second)
    assert value is not None
    assert RECORD_CODEC.decode(value).signed_entries == (share,)


def test_signatures_are_verified_once() -> None:
    looked: list[bytes] = []

    def verify(raw: bytes) -> object:
        looked.append(raw)
        return verify_command(NET.network, raw, check_signature)

    known = Signatures(verify)  # type: ignore[arg-type]
    good = signed_command(SHARE, "ann")
    for raw, is_good in ((good, True), (forged(good), False)) * 2:
        assert (known.verified(raw) is not None) == is_good
    assert len(looked) == 2
    assert Signatures(None).verified(good) is None
