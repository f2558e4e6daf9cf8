"""`SharedModel`: a model's file that the nodes of an application have fetched."""

from typing import Annotated

import msgspec

from agiledart_kernel.counts import Count

MAX_SHARED_MODELS = 8
"""Models of an application that its nodes keep: the newest."""


class SharedModel(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A model by its SHA-256, with its size in bytes."""

    digest: Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
    size: Count
