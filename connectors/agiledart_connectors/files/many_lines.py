"""`ManyLines`: the lines of all files of a folder or pattern, one file after the other in order of their names."""

from glob import glob, has_magic
from pathlib import Path

from agiledart_connectors.codecs.file_start import PLAIN_LINES, IsHeader, LineForm
from agiledart_connectors.codecs.lines import FileLines, LinesBlock
from agiledart_kernel.errors import OperationFailed


def is_many(path: str) -> bool:
    """Return whether a path means several files: a folder, or a pattern that is not the name of a file."""
    return path not in ("", "-") and (Path(path).is_dir() or (has_magic(path) and not Path(path).exists()))


def files_of(path: str) -> list[str]:
    """The files that a path means now, in order of their names; not those that begin with a dot, or end in `.part`."""
    if Path(path).is_dir():
        candidates = [str(entry) for entry in Path(path).iterdir()]
    elif has_magic(path) and not Path(path).exists():
        candidates = glob(path, recursive=True)
    else:
        return [path] if Path(path).exists() else []
    files = (Path(candidate) for candidate in sorted(candidates))
    return [str(file) for file in files if not file.name.startswith(".") and file.suffix != ".part" and file.is_file()]


class ManyLines:
    """Reads them as they are when it begins.

    Attributes:
        form: how the lines are written.
        is_header: asked of each file's first record.

    Raises:
        OperationFailed: there is no file; one cannot be read.
    """

    def __init__(self, path: str, form: LineForm = PLAIN_LINES) -> None:
        self._paths, self.form = files_of(path), form
        if not self._paths:
            in_it = " in this directory" if Path(path).is_dir() else ""
            raise OperationFailed(f"{path} cannot be read: there is no such file{in_it}")
        self._paths.reverse()
        self._lines: FileLines | None = None
        self.name = Path(self._paths[-1]).name
        self.is_header: IsHeader | None = None
        self._notices: list[str] = []

    @property
    def skipped(self) -> int:
        return 0 if self._lines is None else self._lines.skipped

    def notices(self) -> list[str]:
        notices, self._notices = self._notices, []
        return notices

    def block(self) -> LinesBlock | None:
        while True:
            if self._lines is None:
                if not self._paths:
                    return None
                self._lines = FileLines(self._paths.pop(), form=self.form)
                self._lines.is_header = self.is_header
                self.name = self._lines.name
            block = self._lines.block()
            self._notices += self._lines.notices()
            if block is not None:
                return block
            self.close()

    def close(self) -> None:
        lines, self._lines = self._lines, None
        if lines is not None:
            lines.close()
