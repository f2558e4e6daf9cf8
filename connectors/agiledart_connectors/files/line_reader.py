"""Sources `csv:`, `jsonl:`, `lines:` and every other that gives lines: a file, many files, files that grow, a generator."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any, Final, Protocol

from agiledart_connectors.codecs.decoder_options import RFC4180, CsvDialect, DecoderOptions, decoder_options
from agiledart_connectors.codecs.file_start import LineForm
from agiledart_connectors.codecs.formats import UNLINED, open_decoder
from agiledart_connectors.codecs.header import HeaderColumns
from agiledart_connectors.codecs.line_block import LineBlock
from agiledart_connectors.codecs.lines import FileLines, GeneratedLines, LineSource, no_fileno
from agiledart_connectors.codecs.malformed_examples import COLUMNS, TOO_LONG, MalformedExamples
from agiledart_connectors.codecs.quoted_records import CsvRecord
from agiledart_connectors.codecs.record_block import RecordBlock
from agiledart_connectors.codecs.row_parser import RowParser
from agiledart_connectors.files.followed_lines import FollowedLines
from agiledart_connectors.files.many_lines import ManyLines, is_many
from agiledart_connectors.options import ReadOptions, flag, number
from agiledart_dataflow.data.schema import is_dict
from agiledart_dataflow.plan.connector_abilities import WaitableReader
from agiledart_dataflow.plan.connectors import Connector, Reading, SourceReader
from agiledart_kernel.errors import ConfigurationError

_MAX_SKIPPED: Final = 10_000
"""Most lines that `skip` passes over."""


class LineBuffer(Protocol):
    """Buffer that makes rows of lines: a `LineBlock` for CSV, a `RecordBlock` for other formats."""

    is_empty: bool
    name: str
    number: int

    def fill(self, data: bytes) -> None: ...
    def fill_texts(self, lines: list[str], *, plain: bool) -> None: ...
    def fill_records(self, records: list[CsvRecord], lines: int) -> None: ...
    def take(self, max_rows: int, wall_ns: int, malformed: dict[str, int]) -> tuple[list[Any], int]: ...


class LineReader:
    """Reader of typed rows; it counts a malformed line by reason and never stops the run for one.

    Args:
        lines: their source.
        block: makes rows of them.
        examples: collects texts about malformed lines.
        whole_lines: rows are the lines themselves, so no line has to be parsed.
    """

    stamps = True

    def __init__(
        self, lines: LineSource, block: LineBuffer, examples: MalformedExamples, *, whole_lines: bool = False
    ) -> None:
        self._source = lines
        self._block = block
        self._examples = examples
        self.on_malformed = examples.on_malformed
        self._whole_lines = whole_lines
        self._exhausted = self._waits = False
        source: object = lines
        self._notices = lines.notices
        self.fileno: Callable[[], int | None] = source.fileno if isinstance(source, WaitableReader) else no_fileno

    def read(self, max_rows: int, wall_ns: int) -> Reading:
        malformed: dict[str, int] = {}
        rows, count = self._block.take(max_rows, wall_ns, malformed)
        self._waits = False
        while count < max_rows and not (self._exhausted or self._waits):
            if self._block.is_empty:
                count += self._next_block(malformed)
                continue
            some, lines = self._block.take(max_rows - count, wall_ns, malformed)
            count += lines
            rows = rows + some if rows else some
        return Reading(rows, count, malformed, self._exhausted, self._waits, self._examples.take())

    def _next_block(self, malformed: dict[str, int]) -> int:
        """Fetch lines; returns how many were too long, which count as malformed."""
        block = self._source.block()
        for note in self._notices():
            self._examples.note(note)
        if block is None:
            self._exhausted = True
            return 0
        self._waits = block.is_all_for_now
        place = self._block
        if block.first is not None:
            place.name, place.number = self._source.name, block.first
        elif place.name != self._source.name or not place.number:
            place.name, place.number = self._source.name, self._source.skipped
        if block.overlong:
            self._examples.add(COLUMNS, f"{place.name}:{place.number + 1}", TOO_LONG)
            place.number += block.overlong
            malformed[COLUMNS] = malformed.get(COLUMNS, 0) + block.overlong
        if block.records is not None:
            place.fill_records(block.records, block.record_lines)
        elif block.texts is None:
            place.fill(block.data)
        elif block.texts:
            place.fill_texts(block.texts, plain=not self._whole_lines and block.plain)
        return block.overlong

    def close(self) -> None:
        self._source.close()


class CsvReader(LineReader):
    """Reads CSV: columns in the order of the fields, or as a header says."""

    def __init__(
        self,
        lines: LineSource,
        row_type: Any,
        examples: MalformedExamples | None = None,
        dialect: CsvDialect = RFC4180,
    ) -> None:
        if lines.form.dialect is None:
            lines.form = replace(lines.form, dialect=dialect)
        parser = RowParser(row_type, None, dialect)
        examples = examples or MalformedExamples()
        self._header = HeaderColumns(row_type, dialect, examples)
        self._parsers: dict[tuple[str, ...] | None, RowParser] = {None: parser}
        self._row_type, self._dialect = row_type, dialect
        self._csv = LineBlock(parser, examples, lines.name)
        super().__init__(lines, self._csv, examples, whole_lines=parser.whole_line)

    def takes_header(self, record: str, *, is_one: bool = False) -> bool:
        """Return whether a file's first record is a header, and take its columns as that names them, else in order.

        Args:
            record: the first one of a file.
            is_one: it is a header in any case.
        """
        columns, is_header = self._header.take(self._source.name, record, is_one=is_one)
        if columns not in self._parsers:
            self._parsers[columns] = RowParser(self._row_type, columns, self._dialect)
        self._csv.parser = self._parsers[columns]
        return is_header


_HEADED: Final = ("csv", "text")
_JSON_FORMATS: Final = ("json", "senml")


def open_lines(connector: Connector, row_type: Any, read_options: ReadOptions, format_name: str) -> SourceReader:
    """The reader of a file's lines, of a folder's or a pattern's files, or of such as grow, in a format."""
    has_header = flag(connector, "header")
    format_name = connector.option("format", format_name)
    options = decoder_options(connector)
    form = LineForm(options.encoding, number(connector, "skip", 0, most=_MAX_SKIPPED), None)
    if format_name in UNLINED:
        raise ConfigurationError(f"{connector.url()}: {format_name} does not come in lines")
    if format_name != "csv":
        in_utf8 = replace(options, encoding=DecoderOptions().encoding)
        decoder, examples = open_decoder(format_name, row_type, in_utf8), MalformedExamples()
        if has_header and format_name not in _HEADED:
            raise ConfigurationError(
                f"{connector.url()}: header=1 is for csv and text; skip=1 passes over the first line"
            )
        lines = _lines(connector, replace(form, skip=form.skip + has_header, is_json=format_name in _JSON_FORMATS))
        return LineReader(lines, RecordBlock(decoder, examples, lines.name), examples, whole_lines=True)
    lines = _lines(connector, replace(form, dialect=options.dialect))
    if is_dict(row_type):
        from agiledart_connectors.codecs.dict_lines import DictLines

        examples = MalformedExamples()
        dicts = DictLines(row_type, options.dialect, examples.note)
        lines.is_header = lambda record: dicts.takes_header(record, name=lines.name, is_one=has_header)
        return LineReader(lines, RecordBlock(dicts, examples, lines.name), examples)
    reader: Any = CsvReader(lines, row_type, dialect=options.dialect)
    if read_options.columns and isinstance(lines, FileLines) and find_spec("pyarrow") is not None:
        from agiledart_connectors.codecs.csv_columns_reader import CsvColumnsReader, supports_columns

        if supports_columns(row_type, options.dialect):
            reader = CsvColumnsReader(
                lines, row_type, read_options.wanted, read_options.may_begin, dialect=options.dialect
            )
    if not connector.option("header"):
        lines.is_header = reader.takes_header
    elif has_header:
        lines.is_header = partial(reader.takes_header, is_one=True)
    opened: SourceReader = reader
    return opened


open_csv = partial(open_lines, format_name="csv")
open_jsonl = partial(open_lines, format_name="json")
open_texts = partial(open_lines, format_name="text")


def _lines(connector: Connector, form: LineForm) -> FileLines | ManyLines | FollowedLines:
    if flag(connector, "follow"):
        if connector.path in ("", "-"):
            raise ConfigurationError(f"{connector.url()}: standard input cannot be followed; it is read until it ends")
        return FollowedLines(connector.path, form)
    return ManyLines(connector.path, form) if is_many(connector.path) else FileLines(connector.path, form=form)


def generated_reader(lines: Iterator[str], name: str, row_type: Any) -> SourceReader:
    """The reader of a generator of CSV lines."""
    return CsvReader(GeneratedLines(lines, name), row_type)
