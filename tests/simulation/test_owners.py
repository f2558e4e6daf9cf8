"""An application belongs to the key that submitted it: at any agent, whichever deploys it."""

import pytest

from agiledart_kernel.instants import SECOND
from agiledart_kernel.permissions import Principal
from agiledart_node.wire.commands import Command, ListApplications, Logs, ShareApplication, Status, Stop, Submit, Tap
from agiledart_node.wire.effects import RefusedRequest, Replied
from tests.simulation.mesh import Mesh, pipeline, submission

OWNER = Principal("submitter", "", b"\x11" * 32)
OTHER = Principal("submitter", "", b"\x22" * 32)
FRIEND = Principal("submitter", "", b"\x33" * 32)
SCOPED = Principal("submitter", "app:mine", b"\x44" * 32)
ELSEWHERE = Principal("submitter", "app:else", b"\x55" * 32)
READER = Principal("reader", "app:mine", b"\x66" * 32)
ADMIN = Principal("admin", "", b"\x77" * 32)


class Owned(Mesh):
    """A mesh with one application of `OWNER`'s."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, 5)
        self.build()
        self.answer(self.ask("a1", self.again(), principal=OWNER))

    def again(self) -> Submit:
        return submission(pipeline("mine"))

    def outcome(self, at: str, command: Command, principal: Principal) -> str:
        """Empty: it was done or could be; else the word for why this asker may not."""
        request = self.ask(at, command, principal=principal)
        assert self.world.run_until(lambda: self.is_answered(request), 60 * SECOND)
        answer = self.answers[request]
        if isinstance(answer, RefusedRequest):
            return answer.reason
        assert isinstance(answer, Replied)
        return ""


@pytest.fixture(scope="module")
def mesh() -> Owned:
    return Owned(5)


@pytest.mark.parametrize("at", ["a1", "a4"])
@pytest.mark.parametrize(
    ("command", "refused"),
    [
        (Stop("mine", now=True), {OTHER: "owner", FRIEND: "owner", ELSEWHERE: "scope", READER: "role"}),
        (Tap("mine", "busiest"), {OTHER: "owner", ELSEWHERE: "scope", READER: "role"}),
        (ShareApplication("mine", "22" * 32), {OTHER: "owner", SCOPED: "owner", ELSEWHERE: "scope", READER: "role"}),
        (submission(pipeline("mine")), {OTHER: "owner", ELSEWHERE: "scope", READER: "role"}),
        (Status("mine"), {ELSEWHERE: "scope"}),
        (Logs("mine"), {ELSEWHERE: "scope"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_unauthorised_user_is_refused_at_every_agent(
    mesh: Owned, at: str, command: Command, refused: dict[Principal, str]
) -> None:
    for principal, reason in refused.items():
        assert mesh.outcome(at, command, principal) == reason, principal
    assert mesh.answer(mesh.ask(at, Status("mine"), principal=OWNER))["state"] == "running"


def test_a_list_is_limited_to_the_scope(mesh: Owned) -> None:
    shown = {
        principal: [
            row["name"] for row in mesh.answer(mesh.ask("a3", ListApplications(), principal=principal))["applications"]
        ]
        for principal in (OWNER, OTHER, READER, ELSEWHERE)
    }
    assert shown == {OWNER: ["mine"], OTHER: ["mine"], READER: ["mine"], ELSEWHERE: []}


def test_a_user_with_another_scope_learns_no_names(mesh: Owned) -> None:
    text = mesh.refusal(mesh.ask("a2", Status("else"), principal=ELSEWHERE))
    assert text == "No application 'else'."


def test_a_share_holds_until_it_is_revoked_and_for_the_next_version() -> None:
    mesh = Owned(6)
    shared = mesh.answer(mesh.ask("a2", ShareApplication("mine", FRIEND.key.hex()), principal=OWNER))
    assert (shared["owner"], shared["shared"]) == (OWNER.key.hex(), [FRIEND.key.hex()])
    assert (
        mesh.outcome("a5", ShareApplication("mine", OTHER.key.hex()), FRIEND) == "owner"
    )  # a share gives no right to share
    assert mesh.outcome("a5", Stop("mine", now=True), FRIEND) == ""
    mesh.answer(mesh.ask("a4", mesh.again(), principal=FRIEND))
    row = mesh.answer(mesh.ask("a3", Status("mine"), principal=OWNER))
    assert (row["version"], row["owner"], row["shared"]) == (2, OWNER.key.hex(), [FRIEND.key.hex()])
    mesh.answer(mesh.ask("a1", ShareApplication("mine", FRIEND.key.hex(), revoke=True), principal=ADMIN))
    assert mesh.outcome("a5", Stop("mine", now=True), FRIEND) == "owner"
    assert mesh.outcome("a5", Stop("mine", now=True), OWNER) == ""


def test_the_name_of_an_ended_application_stays_its_owners() -> None:
    mesh = Owned(7)
    assert mesh.outcome("a2", Stop("mine", now=True), SCOPED) == ""
    assert mesh.outcome("a2", mesh.again(), OTHER) == "owner"
    assert mesh.outcome("a2", mesh.again(), SCOPED) == ""
    assert mesh.answer(mesh.ask("a1", Status("mine"), principal=OWNER))["owner"] == OWNER.key.hex()


def test_one_of_two_concurrent_submitters_of_a_name_owns_it() -> None:
    for seed in range(4):
        mesh = Mesh(30 + seed, 5).build()
        requests = {
            principal: mesh.ask(at, submission(pipeline("race")), principal=principal)
            for at, principal in (("a1", OWNER), ("a4", OTHER))
        }
        for request in requests.values():
            assert mesh.world.run_until(lambda number=request, of=mesh: of.is_answered(number), 60 * SECOND)
        done = [principal for principal, request in requests.items() if isinstance(mesh.answers[request], Replied)]
        assert len(done) == 1
        assert mesh.answer(mesh.ask("a2", Status("race"), principal=ADMIN))["owner"] == done[0].key.hex()


def test_a_share_with_an_invalid_key_shows_the_expected_form(mesh: Owned) -> None:
    for text in ("", "friend", "00" * 32, "22" * 31):
        assert "64 hex digits" in mesh.refusal(mesh.ask("a1", ShareApplication("mine", text), principal=OWNER))
