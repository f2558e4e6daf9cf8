"""A user's code: found, called with settings, bundled, and run again elsewhere."""

import sys
from collections.abc import Iterator
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from agiledart_executor.user_code import bundle as bundle_module
from agiledart_executor.user_code import user_modules
from agiledart_executor.user_code.parameter import parse_settings, parse_value
from agiledart_executor.user_code.user_builder import (
    Bundle,
    build,
    build_bundle,
    decode_bundle,
    encode_bundle,
    load_builder,
    make_bundle,
    modules_of,
)
from agiledart_executor.user_code.user_modules import forget_private
from agiledart_kernel.errors import (
    ConfigurationError,
    OperationFailed,
    RemoteProtocolError,
    TopologyError,
    UserCodeError,
)
from agiledart_kernel.spans import parse_span

PRELUDE = """
from datetime import timedelta
from typing import NamedTuple

from agiledart_dataflow.plan.connectors import Sink, Source, connector
from agiledart_dataflow.graph.topology import Topology

class Reading(NamedTuple):
    at: int
    value: float

def same(reading: Reading) -> Reading:
    return reading
"""

BUILDER = """
def build(
    readings: Source[Reading],
    report: Sink[Reading] = connector("csv", "report.csv"),
    every: timedelta = timedelta(minutes=1),
    factor: int = 2,
) -> Topology:
    t = Topology("readings")
    t.source("readings", readings, event_time=lambda r: r.at).map(same).sink("report", report)
    return t
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "rooms.py").write_text(PRELUDE + BUILDER)
    return tmp_path


@pytest.fixture(autouse=True)
def _untouched_path() -> Iterator[None]:
    before = list(sys.path)
    yield
    assert sys.path == before, "running user code must not change the path"


def _bundle(folder: Path, target: str = "rooms.py:build", **settings: str) -> Bundle:
    settings.setdefault("readings", "csv:in.csv")
    return make_bundle(load_builder(target, folder), settings, folder=folder)


def _sent(bundle: Bundle) -> Bundle:
    return decode_bundle(encode_bundle(bundle))


def test_a_bundle_builds_the_same_graph_on_another_machine(project: Path) -> None:
    builder = load_builder("rooms.py:build", project)
    here = build(builder, {"readings": "csv:in.csv@pi2"}, project)
    there = build_bundle(_sent(_bundle(project, readings="csv:in.csv@pi2")))
    assert there.specification().digest() == here.specification().digest()
    assert there.steps[0].connector is not None
    assert there.steps[0].connector.path == str(project / "in.csv")
    assert there.steps[0].at == "pi2"


def test_relative_default_paths_are_made_absolute_at_submission(project: Path) -> None:
    assert _bundle(project).parameters["report"] == f"csv:{project}/report.csv"


def test_absolute_paths_and_other_kinds_are_unchanged(project: Path) -> None:
    assert _bundle(project, readings="csv:/data/a.csv").parameters["readings"] == "csv:/data/a.csv"
    assert _bundle(project, readings="taxi:?seed=3").parameters["readings"] == "taxi:?seed=3"


def test_a_user_file_named_like_a_system_module_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "dataflow.py").write_text(PRELUDE + "import agent, json\nWORDS = agent.WORD + json.WORD\n" + BUILDER)
    (tmp_path / "agent.py").write_text("WORD = 'my agent '\n")
    (tmp_path / "json.py").write_text("WORD = 'my json'\n")
    (tmp_path / "asyncio.py").write_text("raise RuntimeError('nobody imports me')\n")
    bundle = _sent(_bundle(tmp_path, "dataflow.py:build"))
    assert sorted(bundle.files) == ["agent.py", "dataflow.py", "json.py"]
    build_bundle(bundle)
    import json

    assert json.dumps([1]) == "[1]"
    assert "agent" not in sys.modules
    loaded = [name for name in sys.modules if name.endswith(".dataflow") and name.startswith("agiledart_user_")]
    assert sys.modules[loaded[-1]].WORDS == "my agent my json"


def test_packages_relative_imports_and_cycles_work(tmp_path: Path) -> None:
    package = tmp_path / "fleet"
    (package / "deep").mkdir(parents=True)
    (package / "__init__.py").write_text("from fleet.deep import names\n")
    (package / "deep" / "__init__.py").write_text("")
    (package / "deep" / "names.py").write_text("NAME = 'n'\nfrom ... import fleet\n")
    (package / "main.py").write_text(PRELUDE + "from .deep.names import NAME\nimport fleet.deep.names as n\n" + BUILDER)
    (package / "unused.py").write_text("raise RuntimeError\n")
    builder = load_builder("fleet/main.py:build", tmp_path)
    assert builder.entry == "fleet.main:build"
    assert "fleet/unused.py" not in builder.modules.files
    bundle = _sent(_bundle(tmp_path, "fleet/main.py:build"))
    assert build_bundle(bundle).name == "readings"
    assert load_builder("fleet.main:build", tmp_path).entry == "fleet.main:build"


def test_two_projects_with_equal_module_names_are_kept_apart(tmp_path: Path) -> None:
    for name in ("a", "b"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "helper.py").write_text(f"NAME = {name!r}\n")
        text = PRELUDE + "import helper\n" + BUILDER.replace('Topology("readings")', "Topology(helper.NAME)")
        (folder / "rooms.py").write_text(text)
    assert [build_bundle(_bundle(tmp_path / name)).name for name in ("a", "b", "a")] == ["a", "b", "a"]


def test_a_hostile_bundle_runs_nothing_that_is_installed() -> None:
    with pytest.raises(OperationFailed, match="holds no source"):
        build_bundle(Bundle("os:getcwd", {}))
    with pytest.raises(OperationFailed, match="not one of the shipped"):
        build_bundle(Bundle("os:getcwd", {}, installed={"os": "00"}))


def test_shipped_examples_are_sent_by_name_and_hash() -> None:
    modules = user_modules.shipped_modules("agiledart_examples.taxi_trips")
    assert not modules.files
    bundle = Bundle("agiledart_examples.taxi_trips:generate", {}, installed=dict(modules.installed))
    bundle_module.check_bundle(bundle)
    other = dict.fromkeys(bundle.installed, "00")
    with pytest.raises(OperationFailed, match="another version of agiledart_examples"):
        bundle_module.check_bundle(msgspec.structs.replace(bundle, installed=other))
    with pytest.raises(OperationFailed, match="does not have"):
        bundle_module.check_bundle(
            msgspec.structs.replace(
                bundle, entry="a:b", files={"a.py": b""}, installed={"agiledart_examples.nothing": "00"}
            )
        )


def test_malformed_bytes_are_no_bundle() -> None:
    for raw in (b"", b"\x00", encode_bundle(Bundle("a:b", {}))[:-3]):
        with pytest.raises(RemoteProtocolError):
            decode_bundle(raw)


def test_newer_syntax_asks_for_a_newer_python() -> None:
    modules = user_modules.UserModules({"a.py": b"x = 1\n"})
    assert modules.python() == (3, 11)
    with pytest.raises(OperationFailed, match=r"written for Python 3\.99"):
        build_bundle(Bundle("a:b", {"a.py": b""}, python=(3, 99)))


def test_code_over_the_limits_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_modules, "MAX_BUNDLE_FILES", 1)
    (tmp_path / "a.py").write_text("import b\n")
    (tmp_path / "b.py").write_text("")
    with pytest.raises(OperationFailed, match="more code than a node takes: at most 1 files"):
        load_builder("a.py:x", tmp_path)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nothing.py:build", "nothing.py does not exist"),
        ("rooms.py:biuld", "rooms.py has no biuld. Did you mean build?"),
        ("rooms.py:Reading", "not a Topology or a function"),
        ("rooms", None),
        ("no.such.module:build", "There is no module no.such.module"),
        ("a b:c", "neither FILE.py:NAME nor dotted.module:NAME"),
        ("agiledart_examples.nothing:x", "no module agiledart_examples.nothing"),
    ],
)
def test_a_missing_name_is_reported_with_a_suggestion(project: Path, target: str, message: str | None) -> None:
    if message is None:
        assert load_builder(target, project).entry == "rooms:build"
        return
    with pytest.raises(ConfigurationError, match=message.replace(".", r"\.").replace("?", r"\?")):
        load_builder(target, project)


def test_without_a_name_the_only_topology_is_taken_and_two_are_an_error(project: Path) -> None:
    assert load_builder("rooms.py", project).entry == "rooms:build"
    (project / "two.py").write_text(PRELUDE + BUILDER + BUILDER.replace("def build", "def other"))
    with pytest.raises(ConfigurationError, match=r"defines build, other: say which, for example two\.py:build"):
        load_builder("two.py", project)
    (project / "none.py").write_text("x = 1\n")
    with pytest.raises(ConfigurationError, match="defines no topology"):
        load_builder("none.py", project)
    (project / "silent.py").write_text(PRELUDE + BUILDER.replace(" -> Topology", ""))
    with pytest.raises(ConfigurationError, match="It defines: no topology, and no function that says it returns one"):
        load_builder("silent.py:biuld", project)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "rooms.py:build needs readings, which nothing sets:  --set readings=…"),
        ({"reedings": "csv:a"}, "no such parameter. Did you mean readings? Parameters: readings, report"),
        ({"readings": "a csv"}, "--set readings=a csv:"),
        ({"readings": "csv:a", "every": "often"}, "every is a time span such as 30m"),
        ({"readings": "csv:a", "factor": "1.5"}, "factor is a whole number"),
    ],
)
def test_wrong_settings_are_named(project: Path, settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        build(load_builder("rooms.py:build", project), settings, project)
    assert message in str(caught.value)


def test_a_finished_topology_takes_no_settings(project: Path) -> None:
    (project / "ready.py").write_text(PRELUDE + BUILDER + "\nready = build(connector('csv', 'a.csv'))\n")
    builder = load_builder("ready.py:ready", project)
    assert build(builder, {}, project).name == "readings"
    with pytest.raises(ConfigurationError, match="It takes no parameters"):
        build(builder, {"a": "1"}, project)


def test_an_exception_in_the_builder_shows_the_users_lines_only(project: Path) -> None:
    (project / "bad.py").write_text(
        PRELUDE + "def build() -> Topology:\n    return half()\n\ndef half():\n    return 1 / 0\n"
    )
    with pytest.raises(UserCodeError) as caught:
        build(load_builder("bad.py:build", project), {}, project)
    lines = str(caught.value).splitlines()
    assert lines[0] == "bad.py:build was called with () and raised:"
    assert lines[-1] == "ZeroDivisionError: division by zero"
    assert "return 1 / 0" in str(caught.value)
    assert [line for line in lines if "File " in line] == [
        f'  File "{project}/bad.py", line 15, in build',
        f'  File "{project}/bad.py", line 18, in half',
    ]


def test_on_a_node_the_traceback_shows_the_bundled_source(project: Path) -> None:
    (project / "bad.py").write_text(PRELUDE + "def build(n: int = 1) -> Topology:\n    return 1 / 0\n")
    bundle = make_bundle(load_builder("bad.py:build", project), {}, folder=project)
    (project / "bad.py").unlink()
    with pytest.raises(UserCodeError, match=r"return 1 / 0"):
        build_bundle(_sent(bundle))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def broken(:\n", ["bad.py could not be imported:", "line 1", "SyntaxError"]),
        ("raise ValueError('no good')\n", ["bad.py could not be imported:", "ValueError: no good"]),
        ("import sys\nsys.exit(3)\n", ["bad.py could not be imported:", "SystemExit: 3"]),
        ("from . import nothing_here\n", ["bad.py could not be imported:", "ImportError"]),
    ],
)
def test_a_file_that_cannot_be_imported_gives_the_reason(project: Path, source: str, words: list[str]) -> None:
    (project / "bad.py").write_text(source)
    with pytest.raises(UserCodeError) as caught:
        load_builder("bad.py:build", project)
    for word in words:
        assert word in str(caught.value)
    assert "user_modules.py" not in str(caught.value)


def test_a_missing_package_is_named_with_its_install_command(project: Path) -> None:
    (project / "bad.py").write_text("import no_such_package_anywhere.part\n")
    with pytest.raises(
        OperationFailed, match=r"imports no_such_package_anywhere, .*pip install no_such_package_anywhere"
    ):
        load_builder("bad.py:build", project)


def test_errors_of_the_graph_name_the_users_line(project: Path) -> None:
    (project / "bad.py").write_text(PRELUDE + "def build() -> Topology:\n    return Topology('a b')\n")
    with pytest.raises(TopologyError, match=r"^bad\.py:15"):
        build(load_builder("bad.py:build", project), {}, project)


def test_a_builder_without_a_return_is_reported(project: Path) -> None:
    (project / "bad.py").write_text(PRELUDE + "def build():\n    Topology('a')\n")
    with pytest.raises(ConfigurationError, match=r"returned NoneType, not a Topology\. Does the function end"):
        build(load_builder("bad.py:build", project), {}, project)


class Colour(Enum):
    RED = "r"
    BLUE = "b"


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (int, "42", 42),
        (float, "2.5", 2.5),
        (bool, "yes", True),
        (bool, "0", False),
        (str, "a=b", "a=b"),
        (timedelta, "1h30m", timedelta(minutes=90)),
        (Colour, "blue", Colour.BLUE),
        (Colour, "r", Colour.RED),
        (Literal["a", "b"], "b", "b"),
        (int | None, "none", None),
        (int | None, "7", 7),
        (list[int], "1, 2,3", [1, 2, 3]),
        (tuple[str, ...], "", ()),
        (Any, "text", "text"),
        (Path, "/a/b", Path("/a/b")),
    ],
)
def test_settings_are_converted_by_annotation(annotation: Any, text: str, value: object) -> None:
    assert parse_value("x", annotation, text) == value


@pytest.mark.parametrize(
    ("annotation", "text", "message"),
    [
        (bool, "perhaps", "x is true or false"),
        (Colour, "green", "x is one of red, blue"),
        (Literal["a", "b"], "c", "x is one of a, b"),
        (list[int], "1,b", "x is a whole number"),
        (timedelta, "inf", "x is a time span"),
        (timedelta, "3 parsecs", "x is a time span"),
    ],
)
def test_settings_of_the_wrong_type_list_the_valid_forms(annotation: Any, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse_value("x", annotation, text)


def test_time_spans_are_parsed() -> None:
    assert parse_span("250ms") == timedelta(milliseconds=250)
    assert parse_span("2d 3h") == timedelta(days=2, hours=3)
    assert parse_span("0") == timedelta(0)
    with pytest.raises(ValueError, match=r"1\.5 has no unit"):
        parse_span("1.5")


def test_set_needs_a_name_and_a_value() -> None:
    assert parse_settings(["a=1", "b=x=y", "a=2"]) == {"a": "2", "b": "x=y"}
    for text in ("a", "=1", "a b=1"):
        with pytest.raises(ConfigurationError, match="write --set NAME=VALUE"):
            parse_settings([text])


def test_modules_of_two_runs_in_one_process_are_not_the_same(tmp_path: Path) -> None:
    code = (
        PRELUDE
        + "SEEN = []\ndef build(name: str = 'one') -> Topology:\n    SEEN.append(name)\n    return Topology(name)\n"
    )
    bundle = Bundle("counted:build", {"counted.py": code.encode()})
    modules = [modules_of(bundle, run) for run in ("a.1", "b.1")]
    for run in ("a.1", "a.1", "b.1"):
        build_bundle(bundle, run)
    loaded = [sys.modules[f"{each.package}.counted"] for each in modules]
    assert [vars(module)["SEEN"] for module in loaded] == [["one", "one"], ["one"]]
    assert modules[0].mark != modules[1].mark
    forget_private(modules[0])
    assert f"{modules[0].package}.counted" not in sys.modules
    assert f"{modules[1].package}.counted" in sys.modules
    build_bundle(bundle, "a.1")
    assert vars(sys.modules[f"{modules[0].package}.counted"])["SEEN"] == ["one"]
