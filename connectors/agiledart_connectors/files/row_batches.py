"""Rows → record batches, for Parquet files; a row that does not fit its columns is rejected, and the others stay."""

from typing import TYPE_CHECKING, Any

from agiledart_connectors.rejections import Rejections, fitting_rows
from agiledart_dataflow.data.batch_forms import record_batch
from agiledart_dataflow.data.columns import Columns
from agiledart_dataflow.data.lazy_module import lazy_import

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = lazy_import("pyarrow")


def fitted(rows: list[Any], row_type: Any, rejections: Rejections) -> tuple[list[Any], Any]:
    """Return the rows that fit, and their record batch; reject the others."""

    def convert(some: list[Any]) -> Any:
        try:
            return record_batch(Columns.from_rows(some, row_type))
        except pa.ArrowException as error:  # some of them are neither TypeError nor ValueError
            raise ValueError(str(error)) from None

    try:
        return rows, convert(rows)
    except (TypeError, ValueError, ArithmeticError):
        fitting = fitting_rows(rows, convert, rejections) if rows else rows
        return fitting, convert(fitting)
