"""Quotas bind submitters, say which and whose, and count what an owner has here."""

from pathlib import Path
from typing import Any, cast

import pytest

from agiledart_agent.executors import quotas as module
from agiledart_agent.executors.quotas import Quotas
from agiledart_agent.settings import AgentSettings
from agiledart_executor.user_code.application_folders import work_folder
from agiledart_executor.user_code.bounds import MB
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.grants import NO_QUOTA, Quota

GIVERS = {b"mine": ("submitter", b"m" * 32), b"theirs": ("submitter", b"o" * 32), b"admin": ("admin", b"a" * 32)}
GIVERS[b"guest"] = ("submitter", b"g" * 32)
OF_TOKENS = {b"guest": Quota(executors=1, memory_mb=250, disk_mb=1)}


class Running:
    def __init__(self, application: str, slot: int = 0) -> None:
        self.application, self.version, self.slot = application, 1, slot


@pytest.fixture(autouse=True)
def orders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "signer_of", GIVERS.__getitem__)
    monkeypatch.setattr(module, "quota_of_signer", lambda signed_command: OF_TOKENS.get(signed_command, NO_QUOTA))


def quotas(tmp_path: Path, **bounds: int) -> Quotas:
    return Quotas(AgentSettings(state_dir=tmp_path, name="pi1", **cast(Any, bounds)), 100 * MB)


def asked(made: Quotas, application: str, signed_command: bytes, *running: Running, slots: int = 1) -> str:
    return made.refusal(application, 1, signed_command, range(slots), cast(Any, running))


def test_executors_of_one_owner_are_counted_once_each(tmp_path: Path) -> None:
    made = quotas(tmp_path, quota_executors=2)
    assert asked(made, "a", b"mine") == ""
    assert asked(made, "a", b"mine", Running("a")) == ""  # the same once more: its second part
    assert asked(made, "b", b"mine", Running("a"), slots=2) == (
        f"pi1 allows submitter {b'm'.hex() * 8} at most 2 executors (quota.executors), and with b it would be 3. "
        "Stop something of yours there, or ask whoever runs it for more"
    )
    assert asked(made, "c", b"theirs", Running("a"), Running("b"), slots=2) == ""
    assert asked(made, "d", b"admin", Running("a"), Running("b"), slots=9) == ""


def test_memory_counts_as_the_limit_of_executors(tmp_path: Path) -> None:
    made = quotas(tmp_path, quota_memory_mb=250)
    assert asked(made, "a", b"mine", slots=2) == ""
    assert "at most 250 MB of memory (quota.memory_mb), and with a it would be 300" in asked(
        made, "a", b"mine", slots=3
    )


def test_disk_counts_the_files_of_an_owners_applications(tmp_path: Path) -> None:
    made = quotas(tmp_path, quota_disk_mb=1)
    assert asked(made, "a", b"mine") == ""
    folder = work_folder(tmp_path, "a") / "spool"
    folder.mkdir(parents=True)
    (folder / "rows").write_bytes(bytes(3 * MB))
    assert "at most 1 MB on its disk (quota.disk_mb), and with b it would be 3" in asked(made, "b", b"mine")
    assert asked(made, "c", b"theirs") == ""


def test_a_token_limits_its_bearer_in_addition_to_the_agents_limits(tmp_path: Path) -> None:
    made = quotas(tmp_path, quota_executors=2)
    assert asked(made, "a", b"guest") == ""
    assert asked(made, "b", b"guest", Running("a")) == (
        f"pi1 allows submitter {b'g'.hex() * 8} at most 1 executors (by its token), and with b it would be 2. "
        "Stop something of yours there, or ask whoever made the token for more"
    )
    assert "at most 2 executors (quota.executors)" in asked(made, "b", b"guest", slots=3)
    assert asked(made, "c", b"mine", Running("a"), slots=2) == ""


def test_without_settings_there_are_no_limits(tmp_path: Path) -> None:
    assert asked(quotas(tmp_path), "a", b"mine", slots=60) == ""


def test_the_quota_table_of_the_settings_is_parsed(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text("[agent]\nzone = 'attic'\n[quota]\napplications = 3\ndisk_mb = 100\n")
    found = AgentSettings.load({}, {}, file)
    assert (found.zone, found.quota_applications, found.quota_disk_mb, found.quota_executors) == ("attic", 3, 100, 0)
    file.write_text("[quota]\napplications = -1\n")
    with pytest.raises(ConfigurationError, match=r"quota\.applications is -1"):
        AgentSettings.load({}, {}, file)
    file.write_text("[quotas]\n")
    with pytest.raises(
        ConfigurationError, match=r"only the tables \[agent\], .*\[quota\] and \[scaling\] are known, found quotas"
    ):
        AgentSettings.load({}, {}, file)
