"""Owners: a false record gives nothing away, a name's former owner enters nothing, and a quota binds while the run goes on."""

from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from agiledart_agent.executors import quotas as quotas_module
from agiledart_agent.executors.quotas import Quotas
from agiledart_agent.settings import AgentSettings
from agiledart_executor.user_code.application_folders import work_folder
from agiledart_executor.user_code.bounds import MB
from agiledart_kernel.errors import Refused
from agiledart_kernel.grants import NO_QUOTA, Grant, Quota
from agiledart_kernel.services import check_service_access, executor_scope
from agiledart_node.records.signed_entries import with_signed_entry
from agiledart_node.wire.commands import ShareApplication, Tap
from tests.adversary.findings import probe, twin
from tests.keys import public_of
from tests.simulation.test_forged_records import BOB, JOB, STOP, Changed, a_mesh, forge, refusal
from tests.simulation.test_signed_orders import Signed
from tests.unit.kernel.test_services import grant_of

ANN = public_of("ann")
STEP = "parse"

# ---- 18: a record with the thief's own command as owner's


def stolen(mesh: Signed) -> Changed:
    """Return a record whose owner is Bob, with his own valid command to submit the same application."""
    raw = mesh.signed_command(JOB, "bob")

    def changed(record: Any) -> Any:
        signed_entries = with_signed_entry(record.signed_entries, raw)
        return msgspec.structs.replace(record, owner_key=BOB, signed_entries=signed_entries)

    return changed


@pytest.fixture
def mesh(monkeypatch: pytest.MonkeyPatch) -> Signed:
    """Ann's application runs, and the record says that it is Bob's."""
    mesh = a_mesh(90)
    forge(mesh, monkeypatch, stolen(mesh))
    return mesh


@probe(18)
def test_the_owner_in_a_record_stops_nothing_that_is_anothers(mesh: Signed) -> None:
    assert "belongs to the key" in refusal(mesh, STOP, "bob")
    assert mesh.hosts("mine") != []


@probe(18)
def test_the_owner_in_a_record_taps_nothing_that_is_anothers(mesh: Signed) -> None:
    assert "belongs to the key" in refusal(mesh, Tap("mine", step_of(mesh)), "bob")


@twin(18)
@pytest.mark.parametrize("at", ["a2", "a4"])
def test_the_owner_and_friends_tap_and_stop(at: str) -> None:
    mesh = a_mesh(91)
    tap = Tap("mine", step_of(mesh))
    assert refusal(mesh, tap, "ann", at) == ""
    assert "belongs to the key" in refusal(mesh, tap, "bob", at)
    assert refusal(mesh, ShareApplication("mine", BOB.hex()), "ann", at) == ""
    assert refusal(mesh, tap, "bob", at) == ""
    assert refusal(mesh, STOP, "bob", at) == ""


def step_of(mesh: Signed) -> str:
    """Return the name of the application's first step."""
    return str(mesh.status("a2", "mine")["stages"][0]["name"]).split("+")[0]


# ---- 25: more on the disk than a quota permits


@pytest.fixture
def quotas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Quotas:
    monkeypatch.setattr(quotas_module, "signer_of", lambda raw: ("submitter", raw * 32))
    monkeypatch.setattr(quotas_module, "quota_of_signer", lambda raw: Quota(disk_mb=1) if raw == b"g" else NO_QUOTA)
    made = Quotas(AgentSettings(state_dir=tmp_path, name="pi1", quota_disk_mb=5), 100 * MB)
    for application, raw in (("guests", b"g"), ("anns", b"a")):
        assert made.refusal(application, 1, raw, range(1), ()) == ""
        folder = work_folder(tmp_path, application)
        folder.mkdir(parents=True)
        (folder / "rows").write_bytes(bytes(3 * MB))
    return made


@probe(25)
def test_a_run_that_has_filled_the_disk_is_ended(quotas: Quotas) -> None:
    over = quotas.over_disk(("guests", "anns"))
    assert list(over) == ["guests"]
    assert "3 MB on the disk of pi1, and may have 1 MB (by its token)" in over["guests"]


@twin(25)
def test_a_run_within_its_quota_goes_on(quotas: Quotas, tmp_path: Path) -> None:
    assert quotas.over_disk(("anns", "an admin's")) == {}
    (work_folder(tmp_path, "guests") / "rows").unlink()
    assert quotas.over_disk(("guests", "anns")) == {}


# ---- 29: the executor key of a name's former owner


def executor(owner: bytes, application: str = "taxi") -> Grant:
    return grant_of("executor", executor_scope(application, owner))


@probe(29)
@pytest.mark.parametrize("serves", [True, False])
def test_the_former_owners_executor_enters_no_data_port(serves: bool) -> None:
    with pytest.raises(Refused, match="two owners"):
        check_service_access("data", executor(BOB), executor(ANN), serves=serves)


@twin(29)
def test_executors_of_one_owner_meet_also_those_of_earlier_releases() -> None:
    check_service_access("data", executor(ANN), executor(ANN))
    check_service_access("data", executor(b""), executor(ANN))
    check_service_access("data", executor(b""), executor(b""))
    with pytest.raises(Refused, match="two applications"):
        check_service_access("data", executor(ANN, "other"), executor(ANN))
    assert cast(Any, executor(ANN).scope).startswith("app:taxi#")
