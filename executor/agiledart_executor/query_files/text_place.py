"""Places in the text of a SQL or YAML file, and the error that names one."""

from dataclasses import dataclass
from typing import NoReturn

from agiledart_kernel.errors import ConfigurationError


class QueryFileError(ConfigurationError):
    """Error: the file says what cannot be done; the text begins with `FILE:LINE:COLUMN`."""


@dataclass(frozen=True)
class TextPlace:
    """Place in a file.

    Attributes:
        file: as the user named it.
        line, column: from 1.
    """

    file: str
    line: int
    column: int

    def refuse(self, text: str) -> NoReturn:
        """Raise the error of this place."""
        raise QueryFileError(f"{self.file}:{self.line}:{self.column}: {text}")

    def moved(self, line: int, column: int) -> "TextPlace":
        """Return the place of a part of a text that begins here; `line` and `column` of the part count from 1."""
        return TextPlace(self.file, self.line + line - 1, column if line > 1 else self.column + column - 1)
