"""One name for all agents of a machine, another for others."""

from pathlib import Path

from agiledart_agent.identity.host_name import MAX_NAME, machine_name


def test_names_differ_by_installation_and_by_host_name(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("0123456789abcdef0123456789abcdef\n")
    other.write_text("fedcba9876543210fedcba9876543210\n")
    names = [machine_name(one, "pi"), machine_name(other, "pi"), machine_name(one, "pi2")]
    assert len(set(names)) == 3
    assert machine_name(one, "pi.attic.example") == names[0]
    assert names[0].startswith("pi-")
    assert "0123" not in names[0]


def test_without_an_installation_number_the_host_name_is_the_whole_name(tmp_path: Path) -> None:
    empty = tmp_path / "machine-id"
    assert machine_name(empty, "pi") == "pi"
    empty.write_text("\n")
    assert machine_name(empty, "pi") == "pi"


def test_long_names_fit_the_wire(tmp_path: Path) -> None:
    number = tmp_path / "machine-id"
    number.write_text("1")
    names = {machine_name(number, "x" * 100), machine_name(tmp_path / "none", "x" * 100)}
    assert {len(name) for name in names} == {MAX_NAME}
