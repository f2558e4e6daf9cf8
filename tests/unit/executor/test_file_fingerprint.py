"""A source is rewound in the file that it had read, and in no other that has taken its place."""

import gzip
from pathlib import Path

import pytest

from agiledart_executor.checkpointing.file_fingerprint import FINGERPRINT_BYTES, check_unchanged, fingerprint_of
from agiledart_kernel.errors import OperationFailed


def test_a_file_that_has_grown_or_was_copied_is_the_same(tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    file.write_text("1,2\n" * 10)
    before = fingerprint_of(str(file))
    assert before is not None
    file.write_text("1,2\n" * 10 + "3,4\n")
    check_unchanged(str(file), before)
    file.write_bytes(b"1,2\n" * FINGERPRINT_BYTES)
    large = fingerprint_of(str(file))
    assert large is not None
    assert large.length == FINGERPRINT_BYTES
    check_unchanged(str(file), large)


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (b"1,2\n" * 9, "is shorter than it was"),
        (b"", "is shorter than it was"),
        (b"1,3\n" * 10, "begins in another way"),
        (gzip.compress(b"1,2\n" * 10_000, mtime=0) * 10, "begins in another way"),
        (None, "does not exist any more"),
    ],
)
def test_a_replaced_file_is_reported_with_its_path_and_a_fix(tmp_path: Path, after: bytes | None, said: str) -> None:
    file = tmp_path / "in.csv"
    file.write_bytes(b"1,2\n" * 10)
    before = fingerprint_of(str(file))
    assert before is not None
    if after is None:
        file.unlink()
    else:
        file.write_bytes(after)
    with pytest.raises(OperationFailed, match=said) as told:
        check_unchanged(str(file), before)
    assert str(file) in str(told.value)
    assert "submit again" in str(told.value)


def test_folders_patterns_and_empty_paths_are_not_checked(tmp_path: Path) -> None:
    assert fingerprint_of(str(tmp_path)) is None
    assert fingerprint_of(str(tmp_path / "*.csv")) is None
    assert fingerprint_of("") is None
