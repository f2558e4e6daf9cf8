"""Records of ended applications outlive a power cut of all nodes, until they are forgotten or the time of a setting has passed."""

from typing import Any, Self

from agiledart_kernel.instants import SECOND
from agiledart_kernel.machine import Effect
from agiledart_kernel.peer import Peer
from agiledart_node.wire.commands import Forget, Status
from agiledart_node.wire.effects import KeepEndedRecords
from agiledart_node.wire.events import ClockRead, EndedRecordsFound
from tests.simulation.mesh import WALL_MS, Mesh, pipeline, submission

MINUTE = 60 * SECOND


class Disks(Mesh):
    """A mesh that notes what goes to the disks; a power cut makes another one of them."""

    def build(self) -> Self:
        self.disks: dict[str, tuple[bytes, ...]] = {}
        return super().build()

    def _on_effect(self, peer: Peer, effect: Effect) -> None:
        super()._on_effect(peer, effect)
        if isinstance(effect, KeepEndedRecords):
            self.disks[peer.name] = effect.records

    def after_a_power_cut(self, wall_ms: int = WALL_MS, **config: Any) -> "Disks":
        """All machines begin anew with nothing but their disks."""
        again = Disks(3, 5, **config).build()
        for node in again.world.live:
            again.world.inject(node.peer.node, ClockRead(wall_ms))
            again.world.inject(node.peer.node, EndedRecordsFound(self.disks.get(node.peer.name, ())))
        again.world.run_for(MINUTE)
        return again


def ended() -> Disks:
    mesh = Disks(3, 5).build()
    mesh.answer(mesh.ask("a1", submission(pipeline("taxi"))))
    mesh.finish("taxi", 1)
    mesh.world.run_for(10 * SECOND)
    return mesh


def test_state_reason_and_figures_of_an_ended_application_outlive_a_power_cut_of_all() -> None:
    mesh = ended()
    before = mesh.status("a2", "taxi")
    assert len(mesh.disks) >= len(before["nodes"])
    after = mesh.after_a_power_cut()
    assert set(after.state_everywhere("taxi").values()) == {"finished"}
    again = after.status("a4", "taxi")
    assert again["summary"] == before["summary"] != {}
    assert (again["version"], again["run"], again["reason"]) == (before["version"], before["run"], before["reason"])
    body = after.answer(after.ask("a3", submission(pipeline("taxi"))))
    assert body["version"] == 2, "versions go on"


def test_one_disk_is_enough() -> None:
    mesh = ended()
    name = sorted(mesh.disks)[0]
    mesh.disks = {name: mesh.disks[name]}
    assert set(mesh.after_a_power_cut().state_everywhere("taxi").values()) == {"finished"}


def test_a_forgotten_application_does_not_come_back_although_one_disk_still_has_it() -> None:
    mesh = ended()
    old = dict(mesh.disks)
    mesh.answer(mesh.ask("a4", Forget("taxi")))
    mesh.world.run_for(2 * MINUTE)
    stale = sorted(old)[0]
    mesh.disks[stale] = old[stale]  # this node was away when it was forgotten
    after = mesh.after_a_power_cut()
    after.world.run_for(2 * MINUTE)
    assert set(after.state_everywhere("taxi").values()) == {"unknown"}
    assert "No application 'taxi'" in after.refusal(after.ask("a2", Status("taxi")))


def test_a_power_cut_right_after_forget_brings_nothing_back() -> None:
    mesh = ended()
    mesh.answer(mesh.ask("a4", Forget("taxi")))
    mesh.world.run_for(SECOND // 10)  # the disks of the hosts
    after = mesh.after_a_power_cut()
    after.world.run_for(2 * MINUTE)
    assert set(after.state_everywhere("taxi").values()) == {"unknown"}


def test_an_application_that_was_submitted_again_is_left_alone() -> None:
    mesh = ended()
    disks = dict(mesh.disks)
    mesh.answer(mesh.ask("a1", submission(pipeline("taxi"))))
    mesh.world.run_for(2 * MINUTE)
    assert all(not records for records in mesh.disks.values()), "nothing of it is kept while it runs"
    mesh.disks = disks
    after = mesh.after_a_power_cut()
    assert set(after.state_everywhere("taxi").values()) == {"finished"}


def test_the_time_of_the_setting_ends_it() -> None:
    mesh = ended()
    day = 86_400_000
    after = mesh.after_a_power_cut(WALL_MS + 2 * day, ended_ms=day)
    assert set(after.state_everywhere("taxi").values()) == {"unknown"}


def test_without_the_setting_nothing_goes_to_the_disk() -> None:
    mesh = Disks(3, 5, ended_ms=0).build()
    mesh.answer(mesh.ask("a1", submission(pipeline("taxi"))))
    mesh.finish("taxi", 1)
    mesh.world.run_for(10 * SECOND)
    assert not mesh.disks


def test_records_on_disk_that_cannot_be_read_are_left_out() -> None:
    mesh = ended()
    mesh.disks = {name: (b"no record", *records) for name, records in mesh.disks.items()}
    assert set(mesh.after_a_power_cut().state_everywhere("taxi").values()) == {"finished"}
