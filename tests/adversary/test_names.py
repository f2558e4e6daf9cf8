"""Names are names: none in a message, a bundle or a record leads out of the state directory."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agiledart_agent.run_store import RunStore
from agiledart_executor.snapshots.snapshot_file import run_folder
from agiledart_executor.user_code.application_folders import work_folder
from agiledart_executor.user_code.bundle import Bundle, check_bundle
from agiledart_kernel.codec import Codec, encode
from agiledart_kernel.errors import OperationFailed, RemoteProtocolError
from agiledart_kernel.machine import Event
from agiledart_node.protocol import NODE_CODEC, NodeMessage
from agiledart_node.records.application import ApplicationRecord
from agiledart_node.records.sink_directory import SinkRecord
from agiledart_node.wire.effects import KeepFile
from agiledart_recovery.wire.effects import FragmentKey
from agiledart_recovery.wire.messages import RequestVoterSlot
from agiledart_recovery.wire.names import RunId
from agiledart_sink_log.layout import log_directory
from tests.adversary.findings import probe, twin

LEADING_OUT = ["/tmp/x", "../x", "a/../../x", "..", ".", "", "a\0b", "a\n", "x/", "-x", "\u0430pp"]
LAWFUL = ["taxi", "a.b-c_d", "9", "a..b"]


@probe(3)
@pytest.mark.parametrize("name", LEADING_OUT)
def test_a_message_about_a_run_named_by_a_path_is_refused(name: str) -> None:
    with pytest.raises(RemoteProtocolError):
        NODE_CODEC.decode(encode(RequestVoterSlot(RunId(name, 7))))


@twin(3)
@pytest.mark.parametrize("name", LAWFUL)
def test_a_message_about_a_named_run_is_decoded(name: str) -> None:
    message = RequestVoterSlot(RunId(name, 7))
    assert NODE_CODEC.decode(encode(message)) == message


def text_fields(kind: Any, seen: dict[Any, bool] | None = None) -> Iterator[tuple[type, str, msgspec.inspect.StrType]]:
    """Yield (struct, field, type) of each text in a type of messages, with all types that it contains."""
    seen = {} if seen is None else seen
    if isinstance(kind, msgspec.inspect.UnionType):
        for inner in kind.types:
            yield from text_fields(inner, seen)
    elif isinstance(kind, msgspec.inspect.StructType):
        if kind.cls in seen:
            return
        seen[kind.cls] = True
        for field in kind.fields:
            if isinstance(field.type, msgspec.inspect.StrType):
                yield kind.cls, field.name, field.type
            yield from text_fields(field.type, seen)
    elif isinstance(kind, msgspec.inspect.VarTupleType | msgspec.inspect.ListType):
        yield from text_fields(kind.item_type, seen)
    elif isinstance(kind, msgspec.inspect.TupleType):
        for inner in kind.item_types:
            yield from text_fields(inner, seen)


LINES_OF_AUDIT = ("AuditFilter", "AuditLine")
"""They hold words of requests to search for, which are part of no path."""


@probe(3)
@pytest.mark.parametrize("kind", [NodeMessage, SinkRecord, FragmentKey], ids=["messages", "log", "fragment"])
def test_each_name_of_an_application_in_messages_has_the_pattern(kind: Any) -> None:
    names = [
        (struct.__name__, text.pattern)
        for struct, field, text in text_fields(msgspec.inspect.type_info(kind))
        if field in ("application", "app") and struct.__name__ not in LINES_OF_AUDIT
    ]
    assert names
    assert [struct for struct, pattern in names if not pattern] == []


@probe(3)
def test_the_name_in_an_applications_record_has_the_pattern() -> None:
    texts = text_fields(msgspec.inspect.type_info(ApplicationRecord))
    assert [text.pattern for struct, field, text in texts if struct is ApplicationRecord and field == "name"] != [None]


@probe(3)
@pytest.mark.parametrize("name", ["/x", "../../x", "a/../../x"])
def test_no_file_is_written_outside_the_state_directory(tmp_path: Path, name: str) -> None:
    state, outside = tmp_path / "a" / "state", tmp_path / "outside"
    state.mkdir(parents=True)
    reach = str(outside) if name.startswith("/") else f"{name[:-1]}../../outside"

    async def work() -> list[Event]:
        events: list[Event] = []
        store = RunStore(state, "n1", events.append)
        try:
            store.keep(KeepFile(1, reach, 7, "voter", b"\x90"))
        except OperationFailed:
            pass
        finally:
            store.close()
        await asyncio.sleep(0)
        return events

    events = asyncio.run(work())
    assert [path.name for path in tmp_path.rglob("voter")] == []
    assert [type(event).__name__ for event in events] in ([], ["Failed"])


@probe(3)
@pytest.mark.parametrize("name", LEADING_OUT)
def test_a_name_that_leads_out_makes_no_path(tmp_path: Path, name: str) -> None:
    for make in (work_folder, log_directory):
        with pytest.raises(OperationFailed):
            make(tmp_path, name)
    if name not in ("", ".", ".."):  # `..1` and `.1` are refused, too: they begin with a dot
        with pytest.raises(OperationFailed):
            run_folder(tmp_path, name, 1)


@twin(3)
@pytest.mark.parametrize("name", LAWFUL)
def test_folders_of_named_applications_are_below_the_root(tmp_path: Path, name: str) -> None:
    assert run_folder(tmp_path, name, 7) == tmp_path / "runs" / f"{name}.7"
    assert work_folder(tmp_path, name) == tmp_path / "work" / name
    assert log_directory(tmp_path, name) == tmp_path / "sink-logs" / name


@probe(3)
@pytest.mark.parametrize(
    "file", ["../../far.py", "/far.py", "a/../b.py", "a//b.py", "./a.py", "a\0.py", "a\\b.py", "a.so"]
)
def test_a_bundle_with_a_file_outside_its_folder_is_refused(file: str) -> None:
    with pytest.raises(OperationFailed, match="outside its folder"):
        check_bundle(Bundle("a:b", {"a.py": b"", file: b"x = 1\n"}))


@twin(3)
def test_a_bundle_with_modules_and_packages_is_taken() -> None:
    check_bundle(Bundle("a:b", {"a.py": b"", "p/__init__.py": b"", "p/q.py": b""}))


@twin(3)
def test_the_decoder_of_a_name_keeps_the_longest() -> None:
    assert Codec(RunId).decode(encode(RunId("a" * 64, 1))).app == "a" * 64
