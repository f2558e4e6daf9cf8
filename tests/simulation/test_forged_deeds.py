"""Deeds that an agent forges or takes from elsewhere: none takes the place of one that counts, however records come together."""

import msgspec
import pytest

from agiledart_kernel.instants import SECOND
from agiledart_kernel.orders import order_giver, read_order, verify_order
from agiledart_kernel.permissions import Asker
from agiledart_node.records.application import RECORD_CODEC, RUNNING, STOPPED, application_key
from agiledart_node.records.deeds import inherited, judged
from agiledart_node.records.kinds import merge_of
from agiledart_node.records.merged_applications import applications
from agiledart_node.records.signatures import Signatures
from agiledart_node.wire.commands import Forget, Share, Stop
from agiledart_node.wire.events import Asked
from agiledart_transport.certificates import check_signature
from tests.keys import public_of
from tests.simulation.mesh import pipeline, submission
from tests.simulation.test_forged_records import BOB, JOB, STOP, a_mesh, a_record, forge, order, refusal, said
from tests.simulation.test_signed_orders import NET

ANN = public_of("ann")
OTHER = submission(pipeline("mine", source_at="a3", sink_at="a5"))
SHARE = Share("mine", BOB.hex())


def forged(raw: bytes, wall_ms: int = 2**52) -> bytes:
    """As if the giver of this order had given it at another time: nobody has signed that."""
    body, signature, chain = msgspec.msgpack.decode(raw)
    words = msgspec.msgpack.decode(body)
    words[2] = wall_ms
    changed = msgspec.msgpack.encode([msgspec.msgpack.encode(words), bytes(len(signature)), chain])
    assert (read_order(changed).wall_ms, order_giver(changed)) == (wall_ms, order_giver(raw))
    return changed


def signatures() -> Signatures:
    return Signatures(lambda raw: verify_order(NET.network, raw, check_signature))


# ---- what is written


def test_a_forged_share_does_not_keep_its_owner_from_sharing(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = a_mesh(121)
    forge(mesh, monkeypatch, said(deeds=(forged(mesh.order(SHARE)), forged(mesh.order(JOB), 0))))
    assert refusal(mesh, SHARE, "ann", "a3") == ""
    assert mesh.status("a2", "mine")["shared"] == [BOB.hex()]
    assert refusal(mesh, STOP, "ann") == ""
    assert refusal(mesh, JOB, "bob") == ""
    told = mesh.status("a2", "mine")
    assert (told["version"], told["owner"], told["shared"]) == (2, ANN.hex(), [BOB.hex()])


@pytest.mark.parametrize("command", [STOP, Stop("mine")])
def test_a_forged_stop_does_not_keep_its_owner_from_stopping(monkeypatch: pytest.MonkeyPatch, command: Stop) -> None:
    mesh = a_mesh(122)
    elsewhere = mesh.order(Stop("other", now=True), ago=-60)  # hers, but about something else
    forge(mesh, monkeypatch, said(deeds=(forged(mesh.order(command)), elsewhere)))
    if command.now:
        assert refusal(mesh, command, "ann") == ""
        told = mesh.status("a4", "mine")
        assert (told["state"], told["by_hearsay"]) == ("stopped", False)
        return
    mesh._request += 1
    asked = Asked(mesh._request, command, "somebody", Asker("submitter", "", ANN), mesh.order(command))
    mesh.world.inject(mesh.by_name["a4"], asked)
    assert mesh.world.run_until(lambda: mesh.status("a3", "mine")["is_stopping"], 30 * SECOND)


def test_a_forged_order_to_submit_keeps_nobody_from_stopping_and_submitting(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = a_mesh(123)
    title = mesh.order(JOB, ago=200)
    forge(mesh, monkeypatch, said(order=forged(mesh.order(JOB)), deeds=(title,)))
    assert refusal(mesh, STOP, "ann") == ""
    assert refusal(mesh, JOB, "ann", "a3") == ""
    assert refusal(mesh, STOP, "ann") == ""
    for version, unfit in ((2, forged(mesh.order(JOB))), (3, b"no order")):
        assert refusal(mesh, Forget("mine"), "ann") == ""
        forge(mesh, monkeypatch, said(order=unfit), version)
        assert refusal(mesh, JOB, "ann", "a3") == ""
        assert refusal(mesh, STOP, "ann") == ""


# ---- an order of a version before


def test_an_old_stop_ends_no_later_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """a1 has kept what began and ended an earlier version; with the same settings, or others."""
    mesh = a_mesh(124)
    stop = mesh.order(STOP, ago=200)
    for old in (mesh.order(JOB, ago=280), mesh.order(OTHER, ago=280), forged(mesh.order(JOB), 0), b""):
        forge(mesh, monkeypatch, said(state=STOPPED, reason="stopped by ann", stopping=True, order=old, deeds=(stop,)))
        mesh.world.run_for(30 * SECOND)
        told = mesh.status("a4", "mine")
        assert (told["state"], told["is_stopping"], told["owner"]) == ("running", False, ANN.hex())
        assert {"a2", "a5"} <= set(mesh.hosts("mine"))
    assert refusal(mesh, STOP, "ann") == ""
    mesh.world.run_for(5 * SECOND)
    told = mesh.status("a4", "mine")
    assert (told["state"], told["by_hearsay"], mesh.hosts("mine")) == ("stopped", False, [])


def test_an_old_wish_drains_no_later_version(monkeypatch: pytest.MonkeyPatch) -> None:
    mesh = a_mesh(125)
    wish = mesh.order(Stop("mine"), ago=200)
    forge(mesh, monkeypatch, said(stopping=True, order=mesh.order(JOB, ago=280), deeds=(wish,)))
    mesh.finish("mine", 1)
    mesh.world.run_for(10 * SECOND)
    assert mesh.status("a4", "mine")["state"] == "finished"  # not `stopped by a user`


# ---- without a mesh


def test_of_an_order_for_other_settings_a_reader_learns_nothing() -> None:
    known = signatures().verified
    begun, other, stop = order(JOB, "ann"), order(OTHER, "ann"), order(STOP, "ann", 5)
    record = msgspec.structs.replace(a_record(begun), specification=JOB.specification, state=STOPPED, deeds=(stop,))
    assert judged(record, known, known) is record
    for unfit in (other, forged(begun, 0), order(STOP, "ann"), b"", b"x"):
        read = judged(msgspec.structs.replace(record, order=unfit, deeds=(begun, stop)), known, known)
        assert (read.by_hearsay, read.owner_key, read.order) == (True, ANN, b"")


def test_the_next_version_inherits_no_forged_title() -> None:
    known = signatures().verified
    title, share = order(JOB, "ann"), order(SHARE, "ann", 5)
    record = msgspec.structs.replace(
        a_record(title), specification=JOB.specification, deeds=(forged(title, 0), forged(share), share)
    )
    assert set(inherited(judged(record, known, known))) == {title, share}


@pytest.mark.parametrize("swapped", [False, True])
def test_where_copies_meet_a_forged_deed_displaces_none(swapped: bool) -> None:
    title, share = order(JOB, "ann"), order(SHARE, "ann", 5)
    crowd = tuple(order(Share("other", f"{number:064x}"), "ann", 100 + number) for number in range(46))
    ours = msgspec.structs.replace(a_record(title), state=RUNNING, deeds=(share,))
    theirs = msgspec.structs.replace(ours, reason="x", deeds=(forged(share), *crowd))
    merge = merge_of((applications(signatures().verified),))
    first, second = (RECORD_CODEC.encode(one) for one in ((theirs, ours) if swapped else (ours, theirs)))
    value = merge(application_key("mine"), first, second)
    assert value is not None
    assert RECORD_CODEC.decode(value).deeds == (share,)


def test_signatures_are_looked_at_once() -> None:
    looked: list[bytes] = []

    def verify(raw: bytes) -> object:
        looked.append(raw)
        return verify_order(NET.network, raw, check_signature)

    known = Signatures(verify)  # type: ignore[arg-type]
    good = order(SHARE, "ann")
    for raw, is_good in ((good, True), (forged(good), False)) * 2:
        assert (known.verified(raw) is not None) == is_good
    assert len(looked) == 2
    assert Signatures(None).verified(good) is None
