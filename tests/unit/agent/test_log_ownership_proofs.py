"""Logs that begin on a node and belong to another owner: the ring's answer, its proof, and the kept copy."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from agiledart_agent.executors.log_ownership_proofs import LogOwnershipProofs
from agiledart_dataflow.plan.connectors import ConnectorSpecification
from agiledart_dataflow.plan.deployment import DeploymentPart, InstancePlace, PlacedInstance
from agiledart_dataflow.plan.specification import Specification, StepSpecification
from agiledart_dataflow.plan.stages import plan_stages
from agiledart_kernel.node_id import NodeId
from agiledart_kernel.peer import Peer
from agiledart_kernel.signed_commands import CommandTerms, sign_command
from agiledart_node.records.sink_directory import SinkFound, SinkRecord
from agiledart_sink_log.log_writer import LogOptions, LogWriter
from tests.keys import NOW, Authority, key_of, public_of

NET = Authority()
ME, OTHER = Peer(NodeId(7), 1, "a1", "10.0.0.1:1"), Peer(NodeId(9), 1, "a2", "10.0.0.2:1")
STEPS = (
    StepSpecification(0, "trips", "source", connector=ConnectorSpecification("taxi", "", (), "")),
    StepSpecification(1, "report", "sink", (0,), connector=ConnectorSpecification("log", "routes", (), "")),
)
JOB = Specification("mine", STEPS)
Find = Callable[[str], Awaitable[SinkFound]]


def signed_command(
    holder: str, role: str = "submitter", name: str = "mine", verb: str = "submit", scope: str = ""
) -> bytes:
    chain = NET.member(holder, role, scope=scope)  # type: ignore[arg-type]
    return sign_command(key_of(holder).sign, chain, NET.network, CommandTerms(verb, name), NOW * 1_000, bytes)


def part(raw: bytes, owner: str) -> DeploymentPart:
    plan = msgspec.msgpack.encode(plan_stages(JOB))
    places = tuple(InstancePlace(stage, 0, 0) for stage in range(2))
    return DeploymentPart(
        "mine", 1, 1, 1, msgspec.msgpack.encode(JOB), plan, b"code", (ME,), (PlacedInstance(1, 0),), places, (), ME, ME,
        signed_command=raw, owner=public_of(owner),
    )  # fmt: skip


def on_the_ring(owner: str, *, is_signed: bool = True, reason: str = "") -> Find:
    async def find(name: str) -> SinkFound:
        assert name == "routes"
        if not owner:
            return SinkFound(1, None, reason)
        key = public_of(owner) if owner != "nobody" else b""
        return SinkFound(
            1, SinkRecord(name, "hers", 1, OTHER, 1, "", b"", 1, key, signed_command(owner)), "", is_signed
        )

    return find


def ask(root: Path, find: Find, of: DeploymentPart) -> tuple[tuple[tuple[str, bytes], ...], str]:
    made, refusal = asyncio.run(LogOwnershipProofs(root, ME.node, find).add_log_owners(of))
    return made.log_owners, refusal


ADMIN = part(signed_command("root", "admin"), "root")
EVE = part(signed_command("eve"), "eve")


def test_a_log_begun_on_another_node_stays_its_owners(tmp_path: Path) -> None:
    assert ask(tmp_path, on_the_ring("ann"), ADMIN) == ((("routes", public_of("ann")),), "")
    assert ask(tmp_path, on_the_ring(""), ADMIN) == ((), "")
    assert ask(tmp_path, on_the_ring("root"), ADMIN) == ((), "")
    assert ask(tmp_path, on_the_ring("nobody"), ADMIN) == ((), "")


def test_an_unsigned_claim_makes_no_owner(tmp_path: Path) -> None:
    owners, refusal = ask(tmp_path, on_the_ring("eve", is_signed=False), ADMIN)
    assert owners == ()
    assert refusal.startswith("The log routes on a2 is recorded as owned by the key")
    assert refusal.endswith("log:routes@a2")


def test_without_an_answer_of_the_ring_a_possibly_owned_log_is_not_begun(tmp_path: Path) -> None:
    silent = on_the_ring("", reason="timeout")
    assert "The owner of the log routes is unknown" in ask(tmp_path, silent, ADMIN)[1]
    assert ask(tmp_path, silent, EVE) == ((), "")  # a log that she begins is hers


def test_a_user_without_write_permission_begins_no_log(tmp_path: Path) -> None:
    for owner in "ann", "nobody":
        assert "Write to another name" in ask(tmp_path, on_the_ring(owner), EVE)[1]
    scoped = part(signed_command("eve", scope="app:mine"), "eve")
    assert "Write to another name" in ask(tmp_path, on_the_ring("nobody"), scoped)[1]  # it is of `hers`


@pytest.mark.parametrize("role", ["admin", "submitter"])
def test_a_local_log_needs_no_question_to_the_ring(tmp_path: Path, role: str) -> None:
    begin(tmp_path, "ann")

    async def never(name: str) -> SinkFound:
        raise AssertionError(name)

    assert ask(tmp_path, never, part(signed_command("eve", role), "eve")) == ((), "")


def begin(root: Path, owner: str) -> None:
    LogWriter(root, "routes", LogOptions(1), "int", [], "mine", 1, owner=public_of(owner)).close()


def test_ownership_proofs_are_kept_beside_their_logs(tmp_path: Path) -> None:
    titles = LogOwnershipProofs(tmp_path, ME.node, on_the_ring("ann"))
    made, _ = asyncio.run(titles.add_log_owners(ADMIN))
    begin(tmp_path, "ann")
    assert titles.of("routes", public_of("ann")) == b""
    titles.keep(made)
    assert titles.of("routes", public_of("ann")) == signed_command("ann")
    assert titles.of("routes", public_of("eve")) == b""  # users' code may write what it likes into log.json
    assert (tmp_path / "log-titles" / "routes").stat().st_mode & 0o077 == 0
    titles.keep(part(signed_command("eve"), "eve"))
    assert titles.of("routes", public_of("ann")) == signed_command("ann")


def test_unsigned_logs_are_unchanged(tmp_path: Path) -> None:
    assert ask(tmp_path, on_the_ring("ann"), part(b"", "ann")) == ((), "")
