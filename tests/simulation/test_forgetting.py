"""Ended applications can be forgotten, and are forgotten after thirty days; their names are free then."""

from typing import Self

import msgspec

from agiledart_dataflow.plan.connectors import ConnectorSpecification
from agiledart_dataflow.plan.specification import Specification
from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.machine import Effect
from agiledart_kernel.peer import Peer
from agiledart_kernel.permissions import Principal
from agiledart_node.records.application import KEPT_MS
from agiledart_node.wire.commands import Forget, ListApplications, Status
from agiledart_node.wire.effects import EndSourceSessions, ForgetRun
from agiledart_node.wire.events import ClockRead, RunsFound
from tests.simulation.mesh import WALL_MS, Mesh, pipeline, submission

OWNER = Principal("submitter", "", b"\x11" * 32)
OTHER = Principal("submitter", "", b"\x22" * 32)


class Forgetting(Mesh):
    """Records what is removed from disks."""

    def _on_effect(self, peer: Peer, effect: Effect) -> None:
        super()._on_effect(peer, effect)
        if isinstance(effect, ForgetRun):
            self.gone.append((peer.name, effect.application, effect.version))
        elif isinstance(effect, EndSourceSessions):
            self.ended_sessions += [(peer.name, session.step, session.index) for session in effect.sessions]

    def build(self) -> Self:
        self.gone: list[tuple[str, str, int]] = []
        self.ended_sessions: list[tuple[str, str, int]] = []
        return super().build()


def ended() -> Forgetting:
    mesh = Forgetting(3, 5).build()
    mesh.answer(mesh.ask("a1", submission(pipeline("taxi")), principal=OWNER))
    mesh.finish("taxi", 1)
    mesh.world.run_for(2 * SECOND)
    return mesh


def test_a_forgotten_application_is_not_listed_and_its_name_is_free() -> None:
    mesh = ended()
    assert mesh.answer(mesh.ask("a4", Forget("taxi"), principal=OWNER)) == {"name": "taxi", "version": 1}
    assert set(mesh.state_everywhere("taxi").values()) == {"unknown"}
    assert "No application 'taxi'" in mesh.refusal(mesh.ask("a2", Status("taxi")))
    body = mesh.answer(mesh.ask("a3", submission(pipeline("taxi")), principal=OTHER))
    assert (body["version"], body["state"]) == (2, "running"), "versions go on: hosts remember what they closed"
    assert mesh.status("a5", "taxi")["owner"] == OTHER.key.hex()


def test_a_running_application_is_not_forgotten_nor_by_an_unauthorised_user() -> None:
    mesh = Mesh(4, 3).build()
    mesh.answer(mesh.ask("a1", submission(pipeline("taxi")), principal=OWNER))
    assert "Stop it first" in mesh.refusal(mesh.ask("a2", Forget("taxi"), principal=OWNER))
    mesh.finish("taxi", 1)
    mesh.world.run_for(2 * SECOND)
    assert "belongs to the key" in mesh.refusal(mesh.ask("a2", Forget("taxi"), principal=OTHER))
    assert set(mesh.state_everywhere("taxi").values()) == {"finished"}


def test_old_applications_are_forgotten_automatically() -> None:
    mesh = ended()

    def names(at: str) -> list[str]:
        return [row["name"] for row in mesh.answer(mesh.ask(at, ListApplications()))["applications"]]

    def pass_days(milliseconds: int) -> None:
        for node in mesh.ids:
            mesh.world.inject(node, ClockRead(WALL_MS + milliseconds))
        mesh.world.run_for(10 * MILLISECOND)

    pass_days(KEPT_MS - 60_000)
    assert names("a1") == ["taxi"]
    pass_days(KEPT_MS + 3_600_000)
    assert names("a2") == []
    mesh.world.run_for(5 * SECOND)
    assert "No application 'taxi'" in mesh.refusal(mesh.ask("a3", Status("taxi")))


def test_a_folder_of_an_ended_run_is_removed_although_unreadable() -> None:
    """The agent was killed before it could remove it, and a disk has damaged the run's identification."""
    mesh = ended()
    mesh.world.inject(mesh.node("a2"), RunsFound((), folders=(("taxi", 1), ("unknown", 1))))
    assert mesh.world.run_until(lambda: bool(mesh.gone), 60 * SECOND)
    mesh.world.run_for(60 * SECOND)
    assert mesh.gone == [("a2", "taxi", 1)], "once, and nothing of which the ring says nothing"


def from_broker(name: str) -> Specification:
    """The pipeline, whose source at a2 reads from a broker, and whose sink is at a3."""
    specification = pipeline(name, "a2", "a3")
    source = msgspec.structs.replace(
        specification.steps[0], connector=ConnectorSpecification("mqtt", "//b/t", (), "a2")
    )
    return msgspec.structs.replace(specification, steps=(source, *specification.steps[1:]))


def test_the_host_of_a_source_ends_its_session_with_the_application() -> None:
    mesh = Forgetting(3, 5).build()
    mesh.answer(mesh.ask("a1", submission(from_broker("taxi")), principal=OWNER))
    mesh.finish("taxi", 1)
    mesh.world.run_for(2 * SECOND)
    assert mesh.ended_sessions == [("a2", "trips", 0)]


def test_any_agent_ends_the_sessions_of_a_forgotten_application_without_hosts() -> None:
    mesh = Forgetting(3, 7).build()
    mesh.answer(mesh.ask("a1", submission(from_broker("taxi")), principal=OWNER))
    mesh.world.run_for(2 * SECOND)
    hosts = mesh.hosts("taxi")
    asked = next(name for name in ("a1", "a4", "a5", "a6", "a7") if name not in hosts)
    for name in hosts:
        mesh.crash(name)
    mesh.world.run_for(120 * SECOND)
    assert mesh.status(asked, "taxi")["state"] == "failed"
    mesh.ended_sessions.clear()
    assert mesh.answer(mesh.ask(asked, Forget("taxi"), principal=OWNER)) == {"name": "taxi", "version": 1}
    assert mesh.ended_sessions == [(asked, "trips", 0)]
