"""YAML applications: results, refusals at their place, and the published schema."""

import re
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agiledart import records, whole_file
from agiledart.onnx_export import onnx_model
from agiledart.scoring import ModelDocument
from agiledart_dataflow.operators.model_scorer import model_version
from agiledart_executor.query_files.yaml_application import SINK, SOURCE, STEP, TOP, WINDOW
from agiledart_executor.query_files.yaml_schema import yaml_schema
from tests.unit.executor.query_files.loading import fault, loaded, rows_of

pytest.importorskip("sqlglot", reason="no sqlglot here: pip install 'agiledart[query]'")
pytest.importorskip("yaml", reason="no PyYAML here: pip install 'agiledart[query]'")


class Reading(NamedTuple):
    """Row of the tests."""

    at: datetime
    room: str
    celsius: float | None


ROWS = [
    Reading(datetime(2026, 1, 1, 0, second // 60, second % 60), room, celsius)  # noqa: DTZ001  UTC without a zone
    for second, room, celsius in [(0, "attic", 20.0), (10, "attic", 32.0), (20, "cellar", None), (90, "cellar", 11.0)]
]

SOURCES = """sources:
  r:
    from: "null:"
    columns: {at: time, room: text, celsius: optional float}
    event_time: at
"""
SINKS = """
sinks:
  result: {to: "null:"}
"""


def results(folder: Path, steps: str, **options: Any) -> list[Any]:
    """Rows after some steps."""
    rows = rows_of(folder, f"{SOURCES}steps:\n{steps}{SINKS}", "query.yaml", r=records(ROWS), **options)
    return [tuple(row) for row in rows]


@pytest.mark.parametrize("parallelism", [1, 3])
def test_steps_follow_each_other(tmp_path: Path, parallelism: int) -> None:
    steps = """
  - where: celsius > 15 OR celsius IS NULL
  - with: {fahrenheit: celsius * 2 + 30, shout: UPPER(room)}
  - select: {shout: shout, fahrenheit: fahrenheit}
"""
    assert results(tmp_path, steps, parallelism=parallelism) == [("ATTIC", 70.0), ("ATTIC", 94.0), ("CELLAR", None)]


def test_windows_by_keys(tmp_path: Path) -> None:
    steps = """
  - window: {tumbling: 1m}
    key: room
    aggregate: {mean: AVG(celsius), n: COUNT(*), span: MAX(celsius) - MIN(celsius)}
    having: n > 1 OR mean < 12
"""
    start = 1_767_225_600_000
    assert results(tmp_path, steps) == [
        ("attic", start, start + 60_000, 26.0, 2, 12.0),
        ("cellar", start + 60_000, start + 120_000, 11.0, 1, 0.0),
    ]
    assert [row[2] for row in results(tmp_path, "\n  - {window: {session: 30s}, aggregate: {n: COUNT(*)}}")] == [3, 1]
    hops = "\n  - {window: {hopping: 2m, every: 1m}, aggregate: {n: COUNT(*)}}"
    assert [row[2] for row in results(tmp_path, hops)] == [3, 4, 1]


def test_the_strategy_that_places_the_application_is_a_part_of_it(tmp_path: Path) -> None:
    steps = "\n  - where: celsius > 15\n"
    build = loaded(tmp_path, f"placement: odp:response\n{SOURCES}steps:{steps}{SINKS}", "query.yaml")
    assert build().placement == "odp:response"


def test_service_levels(tmp_path: Path) -> None:
    steps = "\n  - {name: warm, where: celsius > 15, slo: 200ms}\n  - where: celsius > 16\n"
    build = loaded(tmp_path, f"slo: 2s\n{SOURCES}steps:{steps}{SINKS}", "query.yaml")
    levels = {step.name: step.slo_ms for step in build().specification().steps if step.slo_ms is not None}
    assert levels == {"warm": 200.0, "result": 2_000.0}
    sink = SINKS.replace("}", ", slo: 1m}", 1)
    build = loaded(tmp_path, f"slo: 2s\n{SOURCES}steps:{steps}{sink}", "query.yaml")
    assert [step.slo_ms for step in build().specification().steps if step.name == "result"] == [60_000.0]


def test_functions_of_users(tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text(
        "def plausible(row):\n    return row.celsius is not None\n\n"
        "def both(row):\n    return [(row.room, row.celsius), {'room': row.room, 'celsius': -row.celsius}]\n\n"
        "def none(row):\n    return None if row.room == 'attic' else (row.room, 0.0)\n"
    )
    steps = """
  - function: checks.py:plausible
  - name: doubled
    function: checks.py:both
    columns: {room: text, celsius: float}
  - function: checks.py:none
    columns: {room: text, celsius: float}
"""
    assert results(tmp_path, steps) == [("cellar", 0.0), ("cellar", 0.0)]
    build = loaded(tmp_path, f"{SOURCES}steps:{steps}{SINKS}", "query.yaml")
    assert "checks.py" in {Path(file).name for file in _modules(tmp_path).files}
    assert build().name == "query"


def _modules(folder: Path) -> Any:
    from agiledart_executor.user_code.user_builder import load_builder

    return load_builder("query.yaml", folder).modules


def test_unions_and_branches(tmp_path: Path) -> None:
    steps = """
  - {name: hot, input: r, where: celsius > 30}
  - {name: cold, input: r, where: celsius < 15}
  - union: [hot, cold]
"""
    assert [row[2] for row in results(tmp_path, steps)] == [32.0, 11.0]


def test_a_bundle_of_yaml_builds_without_yaml_or_sqlglot(tmp_path: Path) -> None:
    """Nodes get Python source: they need neither library, nor the file."""
    import subprocess
    import sys

    from agiledart_executor.user_code.user_builder import encode_bundle, load_builder, make_bundle

    (tmp_path / "query.yaml").write_text(f"{SOURCES}steps:\n  - where: celsius > 3{SINKS}")
    bundle = encode_bundle(make_bundle(load_builder("query.yaml", tmp_path), {}, folder=tmp_path))
    (tmp_path / "bundle").write_bytes(bundle)
    program = (
        "import sys; sys.modules['sqlglot'] = sys.modules['yaml'] = None\n"
        "from agiledart_executor.user_code.user_builder import build_bundle, decode_bundle\n"
        f"print(build_bundle(decode_bundle(open({str(tmp_path / 'bundle')!r}, 'rb').read())).name)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "query", done.stderr


MISTAKES = [
    ("", "1:1", "the file is empty"),
    ("- a", "1:1", "an application is a mapping"),
    ("a: [1", "1:6", "is not YAML"),
    ("a: b: c", "1:5", "is not YAML"),
    ("a: 'b", "1:6", "is not YAML"),
    ("sauces: {}", "1:9", "no sauces. Did you mean sources?"),
    ("sources: {}", "1:1", "sinks: is missing"),
    ("sources: {}\nsinks: {}\nsources: {}", "3:1", "stands twice"),
    ("sources: [r]\nsinks: {}", "1:10", "sources is a mapping"),
    ("sources: {r: {from: 'null:'}}\nsinks: {}", "1:14", "columns: of source r is missing"),
    ("sources: {r: {from: 'r.csv', columns: {a: int}}}\nsinks: {}", "1:22", "did you mean csv:r.csv"),
    ("sources: {r: {from: 'null:', columns: {a: money}}}\nsinks: {}", "1:43", "there is no type money"),
    ("sources: {r: {from: 'null:', columns: {a-b: int}}}\nsinks: {}", "1:45", "cannot name a column"),
    ("sources: {r: {from: 'null:', columns: {}}}\nsinks: {}", "1:39", "columns are missing"),
    ("sources: {r-1: {from: 'null:', columns: {a: int}}}\nsinks: {}", "1:16", "cannot name a stream"),
    ("sources: {r: {from: 'null:', columns: {a: int}, event_time: b}}\nsinks: {}", "1:61", "event_time names a column"),
    ("sources: {r: {from: 'null:', columns: {a: int}, overload: drop}}\nsinks: {}", "1:59", "overload is one of"),
    ("sources: {r: {from: 'null:', columns: {a: int}, max_ahead: soon}}\nsinks: {}", "1:60", "no length of time"),
    ("sources: {r: {from: 'null:', columns: {a: int}}}\nsinks: {}", "1:14", "nothing reads r"),
    ("name: a b\nsources: {}\nsinks: {}", "1:7", "name: letters"),
    ("delivery: often\nsources: {}\nsinks: {}", "1:11", "delivery is one of"),
    ("placement: 'odp:'\nsources: {}\nsinks: {}", "1:13", "placement is STRATEGY or STRATEGY:OBJECTIVE"),
    ("slo: 2\nsources: {}\nsinks: {}", "1:6", "slo is '2'; it is a time above 0 with its unit"),
    ("slo: 0s\nsources: {}\nsinks: {}", "1:6", "slo is '0s'; it is a time above 0 with its unit"),
    ("slo: 999999999999d\nsources: {}\nsinks: {}", "1:6", "it is a time above 0 with its unit"),
    ("x: !!python/object:os.system 1", "1:4", "tags such as"),
    ("@  - where: celsius", "7:12", "a condition is needed"),
    ("@  - where: celsius >", "7:20", "not SQL that is understood"),
    ("@  - where: celsius > 1; room = 'a'", "7:23", "is not"),
    ("@  - where: \"celsius > 1 AND rom = 'a'\"", "7:29", "no column rom. Did you mean room?"),
    ("@  - where: SUM(celsius) > 1", "7:12", "needs a window"),
    ("@  - where: celsius > 1 AS x", "7:12", "is not one expression"),
    ("@  - where: 1, 2", "7:12", "is not one expression"),
    ("@  - where: celsius FROM r", "7:12", "is not one expression"),
    ("@  - where: ''", "7:13", "an expression is missing"),
    ("@  - where: [a]", "7:12", "an expression is a text"),
    ("@  - wher: celsius > 1", "7:11", "no wher. Did you mean where?"),
    ("@  - {name: x}", "7:5", "a step has one of"),
    ("@  - {where: TRUE, with: {a: 1}}", "7:5", "this has where and with"),
    ("@  - {where: TRUE, key: room}", "7:24", "key does not go with where"),
    ("@  - {where: TRUE, input: s}", "7:26", "there is no stream s"),
    ("@  - {where: TRUE, name: r}", "7:5", "already a stream r"),
    ("@  - {where: TRUE, name: a}\n  - {input: r, where: TRUE}", "7:5", "nothing reads a"),
    ("@  - with: {a: NULL}", "7:15", "an expression is a text"),
    ("@  - with: {a: celsius + room}", "7:15", "+ does not work on FLOAT and TEXT"),
    ("@  - with: {on_error: 1}", "7:22", "cannot name a column"),
    ("@  - function: rooms:plausible", "7:15", "write function: FILE.py:NAME"),
    ("@  - function: ../rooms.py:plausible", "7:15", "write function: FILE.py:NAME"),
    ("@  - {window: {tumbling: 1m}}", "7:5", "a window needs aggregate"),
    ("@  - {window: {tumbling: 1}, aggregate: {n: COUNT(*)}}", "7:25", "no length of time"),
    ("@  - {window: {tumbling: 1m, every: 1s}, aggregate: {n: COUNT(*)}}", "7:14", "a window is tumbling"),
    ("@  - {window: {tumbling: 1m}, aggregate: {n: celsius}}", "7:45", "stands outside of an aggregate"),
    ("@  - {window: {tumbling: 1m}, aggregate: {window_end: COUNT(*)}}", "7:54", "cannot name a result"),
    ("@  - {window: {tumbling: 1m}, key: rom, aggregate: {n: COUNT(*)}}", "7:35", "no column rom"),
    ("@  - {window: {tumbling: 1m}, aggregate: {n: SUM(room)}}", "7:45", "SUM does not work on TEXT"),
    ("@  - {window: {tumbling: 1m}, aggregate: {n: COUNT(*)}, having: m > 1}", "7:64", "no column m"),
    ("@  - union: [r]", "7:12", "at least two"),
    ("@  - {name: a, select: {room: room}}\n  - union: [r, a]", "8:16", "other columns"),
]


def shown_fault(folder: Path, text: str) -> str:
    """The message of a mistake; `@` stands for the sources, and the sinks follow."""
    given = f"{SOURCES}steps:\n{text[1:]}{SINKS}" if text.startswith("@") else text
    return fault(folder, given, "query.yaml")


@pytest.mark.parametrize(("text", "place", "message"), MISTAKES, ids=[text[:60] or "empty" for text, _, _ in MISTAKES])
def test_mistakes_are_refused_at_their_place(tmp_path: Path, text: str, place: str, message: str) -> None:
    shown = shown_fault(tmp_path, text)
    assert shown.startswith(f"query.yaml:{place}:"), shown
    assert message in shown


def test_a_billion_laughs_are_refused(tmp_path: Path) -> None:
    text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
    )
    assert "too large" in fault(tmp_path, text, "query.yaml")


def test_the_schema_has_the_keys_of_the_translator() -> None:
    schema = yaml_schema()
    assert tuple(schema["properties"]) == TOP
    assert tuple(schema["properties"]["sources"]["additionalProperties"]["properties"]) == SOURCE
    step = schema["properties"]["steps"]["items"]
    assert tuple(step["properties"]) == STEP
    assert tuple(step["properties"]["window"]["properties"]) == WINDOW
    assert tuple(schema["properties"]["sinks"]["additionalProperties"]["properties"]) == SINK


SCORED = """
  - {name: felt, score: {model: felt.onnx, inputs: [celsius, celsius], output: felt}}
  - {where: "felt > 30 OR felt IS NULL"}
"""


def test_models_score_rows(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="no ONNX Runtime here: pip install 'agiledart[onnx]'")
    model = ModelDocument(1, "felt", "1", "linear", ("a", "b"), 1.0, (1.5, 0.5))
    (tmp_path / "felt.onnx").write_bytes(onnx_model(model))
    rows = results(tmp_path, SCORED, felt_model=whole_file(str(tmp_path / "felt.onnx")))
    assert [row[1:4] for row in rows] == [("attic", 20.0, 41.0), ("attic", 32.0, 65.0), ("cellar", None, None)]
    assert {row[4] for row in rows} == {model_version(onnx_model(model))}


@pytest.mark.parametrize(
    ("score", "message"),
    [
        ("{inputs: [celsius]}", "score takes a model and its inputs"),
        ("{model: m.onnx, inputs: [celcius]}", "there is no column celcius"),
        ("{model: m.onnx, inputs: [room]}", "a model takes numbers, and room is of type text"),
        ("{model: m.onnx, inputs: []}", "inputs: [column"),
        ("{model: m.onnx, inputs: [celsius], output: room}", "'room' cannot name the score"),
        ("{model: m.onnx, inputs: [celsius], on_error: retry}", "on_error is one of fail, skip"),
        ("{model: m.onnx, input: [celsius]}", "Did you mean inputs?"),
    ],
)
def test_mistakes_about_models_have_a_place(tmp_path: Path, score: str, message: str) -> None:
    text = fault(tmp_path, f"{SOURCES}steps:\n  - {{name: m, score: {score}}}\n{SINKS}", "query.yaml")
    assert message in text
    assert re.match(r"query\.yaml:7:\d+: ", text), text


def test_steps_state_their_nodes(tmp_path: Path) -> None:
    steps = """
  - {where: celsius > 0, place: {zone: hall}}
  - {name: mean, window: {tumbling: 1m}, aggregate: {m: AVG(celsius)}, place: {labels: [gpu, fast], on: pi1}}
"""
    topology = loaded(tmp_path, f"{SOURCES}steps:\n{steps}{SINKS}", "query.yaml")()
    rules = {step.name: dict(step.options).get("place", "") for step in topology.steps}
    assert "hall" in rules["step1"]
    assert {name for name, rule in rules.items() if "gpu" in rule and "pi1" in rule} == {
        "mean-prepare",
        "mean-window",
        "mean",
    }
    assert rules["r"] == rules["result"] == ""


@pytest.mark.parametrize(
    ("place", "message"),
    [("{label: gpu}", "Did you mean labels?"), ("{labels: [a b]}", "a b"), ("[gpu]", "place is a mapping")],
)
def test_mistakes_about_nodes_have_a_place(tmp_path: Path, place: str, message: str) -> None:
    text = fault(tmp_path, f"{SOURCES}steps:\n  - {{where: celsius > 0, place: {place}}}\n{SINKS}", "query.yaml")
    assert message in text
    assert re.match(r"query\.yaml:7:\d+: ", text), text
