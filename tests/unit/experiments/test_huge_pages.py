"""Which ranges of memory are moved into large pages."""

from agiledart_experiments.huge_pages import _whole, gather

_MIB = 1 << 20

_MAPS = """\
00100000-00500000 rw-p 00000000 00:00 0                                  [heap]
00800000-00900000 rw-p 00000000 00:00 0
00900000-00e00000 rw-p 00000000 00:00 0
00e00000-02000000 r--p 00000000 fe:00 131 /usr/lib/some library.so
02000000-04000000 rw-p 00000000 fe:00 131 /usr/lib/some library.so
04100000-04200000 rw-p 00000000 00:00 0
"""


def test_only_private_anonymous_memory_in_whole_large_pages_is_used() -> None:
    assert list(_whole(_MAPS)) == [(2 * _MIB, 4 * _MIB), (8 * _MIB, 14 * _MIB)]


def test_an_unsupported_platform_is_left_alone() -> None:
    kept = [bytes([index % 256]) * 1_000 for index in range(10_000)]
    assert gather() >= 0
    assert all(each == bytes([index % 256]) * 1_000 for index, each in enumerate(kept))
