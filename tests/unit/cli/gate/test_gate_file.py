"""File of a gate: each mistake is reported with its place, before anything is leased."""

from pathlib import Path

import pytest

from agiledart_cli.gate.gate_file import EXAMPLE, GateFile, read_gate_file
from agiledart_cli.gate.local_provider import LocalProvider
from agiledart_cli.gate.provider_catalogue import provider_named
from agiledart_cli.main import run_cli
from agiledart_kernel.errors import ConfigurationError
from agiledart_kernel.instants import SECOND

ACTS = EXAMPLE.replace('"advise"', '"act"')


def read(tmp_path: Path, text: str) -> GateFile:
    path = tmp_path / "gate.toml"
    path.write_text(text)
    return read_gate_file(path)


def test_the_example_is_valid_and_only_advises(tmp_path: Path) -> None:
    content = read(tmp_path, EXAMPLE)
    assert content.settings.mode == "advise"
    assert (content.settings.max_hosts, content.settings.max_spend) == (2, 1_000_000)
    assert (content.settings.btu_ns, content.settings.round_ns) == (120 * SECOND, 10 * SECOND)
    assert content.settings.window_ns == 30 * SECOND
    assert content.settings.window_ns > content.settings.round_ns


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[gate", "gate.toml: "),
        ("x = 1", "the file has no 'x'"),
        ("[gate]\nmax_host = 2\n[provider]\nkind = 'local'", "[gate] has no 'max_host'"),
        ("[gate]\nmax_host = 2\n[provider]\nkind = 'local'", "Did you mean max_hosts?"),
        (
            "[gate]\nmax_hosts = 0\n[provider]\nkind = 'local'",
            "[gate] max_hosts = 0: it must be a whole number above 0",
        ),
        ("[gate]\nmax_spend = -1\n[provider]\nkind = 'local'", "[gate] max_spend = -1: it must be a number above 0"),
        (
            "[gate]\nwindow = 30\n[provider]\nkind = 'local'",
            '[gate] window = 30: it must be a time with its unit, as "90s"',
        ),
        ("[gate]\nname = 'My Gate'\n[provider]\nkind = 'local'", "use 1 to 16 small letters and digits"),
        ("[gate]\npolicy = 'btus'\n[provider]\nkind = 'local'", "use one of hosts, btu, threshold. Did you mean btu?"),
        ("[gate]\nmode = 'act'", "[provider] needs a kind"),
        ("[provider]\nkind = 'local'\ncapacity = 0", "[provider] capacity = 0"),
        ("[provider]\nkind = 'local'\nbtu = '-1h'", "[provider] btu = '-1h'"),
    ],
)
def test_a_mistake_is_reported_with_its_place(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, text)
    assert said in str(caught.value)
    assert str(tmp_path / "gate.toml") in str(caught.value)


def test_a_provider_bills_units_or_seconds(tmp_path: Path) -> None:
    by_second = read(tmp_path, EXAMPLE.replace('btu = "2m"', 'btu = "1m"\nbilling = "second"'))
    assert by_second.settings.by_second
    assert "billing" not in by_second.options
    assert not read(tmp_path, EXAMPLE).settings.by_second
    with pytest.raises(ConfigurationError, match=r"use unit or second\. Did you mean second\?"):
        read(tmp_path, EXAMPLE.replace('btu = "2m"', 'billing = "seconds"'))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"btu": "2m"}, "[provider] needs price"),
        ({"price": 0, "btu": "2m"}, "[provider] price = 0: it must be a number above 0"),
        ({"price": 0.1, "btu": "2m", "folder": "/tmp/" + "long" * 10}, "is too long"),
        ({"price": 0.1, "btu": "2m", "region": "x"}, "[provider] has no 'region'; local has folder, price"),
    ],
)
def test_the_local_provider_refuses_options_that_make_no_sense(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        LocalProvider(options)
    assert said in str(caught.value)


def test_an_unknown_provider_gets_a_suggestion() -> None:
    with pytest.raises(ConfigurationError) as caught:
        provider_named("locale", {})
    assert "Did you mean local?" in str(caught.value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("max_hosts = 2 ", 'mode = "act" needs max_hosts'),
        ("max_spend = 1.00 ", 'mode = "act" needs max_spend'),
    ],
)
def test_a_gate_that_acts_needs_both_limits(
    line: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "gate.toml"
    assert line in ACTS
    path.write_text(ACTS.replace(line, ""))
    assert run_cli(["provision", "run", str(path)]) == 2
    assert said in capsys.readouterr().err


def test_an_existing_file_is_not_overwritten_by_the_example(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "gate.toml"
    assert run_cli(["provision", "run", "--example", str(path)]) == 0
    assert read_gate_file(path).provider == "local"
    assert run_cli(["provision", "run", "--example", str(path)]) == 1
    assert "cannot be written: File exists" in capsys.readouterr().err
