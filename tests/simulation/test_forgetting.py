"""Applications that have ended can be let go, and go by themselves after thirty days; their names are free then."""

from agiledart_kernel.instants import MILLISECOND, SECOND
from agiledart_kernel.permissions import Asker
from agiledart_node.records.application import KEPT_MS
from agiledart_node.wire.commands import Forget, ListApplications, Status
from agiledart_node.wire.events import ClockRead
from tests.simulation.mesh import WALL_MS, Mesh, pipeline, submission

OWNER = Asker("submitter", "", b"\x11" * 32)
OTHER = Asker("submitter", "", b"\x22" * 32)


def ended() -> Mesh:
    mesh = Mesh(3, 5).build()
    mesh.answer(mesh.ask("a1", submission(pipeline("taxi")), asker=OWNER))
    mesh.finish("taxi", 1)
    mesh.world.run_for(2 * SECOND)
    return mesh


def test_what_is_forgotten_is_listed_nowhere_and_its_name_is_free() -> None:
    mesh = ended()
    assert mesh.answer(mesh.ask("a4", Forget("taxi"), asker=OWNER)) == {"name": "taxi", "version": 1}
    assert set(mesh.state_everywhere("taxi").values()) == {"unknown"}
    assert "No application 'taxi'" in mesh.refusal(mesh.ask("a2", Status("taxi")))
    body = mesh.answer(mesh.ask("a3", submission(pipeline("taxi")), asker=OTHER))
    assert (body["version"], body["state"]) == (2, "running"), "versions go on: hosts remember what they closed"
    assert mesh.status("a5", "taxi")["owner"] == OTHER.key.hex()


def test_what_runs_is_not_and_who_may_not_does_not() -> None:
    mesh = Mesh(4, 3).build()
    mesh.answer(mesh.ask("a1", submission(pipeline("taxi")), asker=OWNER))
    assert "Stop it first" in mesh.refusal(mesh.ask("a2", Forget("taxi"), asker=OWNER))
    mesh.finish("taxi", 1)
    mesh.world.run_for(2 * SECOND)
    assert "belongs to the key" in mesh.refusal(mesh.ask("a2", Forget("taxi"), asker=OTHER))
    assert set(mesh.state_everywhere("taxi").values()) == {"finished"}


def test_old_ones_go_by_themselves() -> None:
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
