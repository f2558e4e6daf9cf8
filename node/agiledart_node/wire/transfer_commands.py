"""Commands that carry files between a user and the asked agent, piece by piece."""

from typing import Annotated

import msgspec

from agiledart_kernel.machine import Message


class ReadCheckpoint(Message, frozen=True, gc=False, tag=233):
    """Read bytes of a checkpoint's file on the asked agent, from `offset` on.

    `name`: of its application; `digest`: of the file, 64 hex digits.
    """

    name: Annotated[str, msgspec.Meta(max_length=64)]
    digest: Annotated[str, msgspec.Meta(min_length=64, max_length=64)]
    offset: Annotated[int, msgspec.Meta(ge=0)]


MAX_UPLOAD_CHUNK_BYTES = 1 << 20
"""Largest piece of a checkpoint's file in one `UploadCheckpoint` or one answer to `ReadCheckpoint`."""


class UploadCheckpoint(Message, frozen=True, gc=False, tag=234):
    """Upload a checkpoint's file to the asked agent, piece by piece; the agent verifies the whole file after the last piece.

    `name`: of the application that is to start from it; `digest`, `size`: of the file.
    """

    name: Annotated[str, msgspec.Meta(max_length=64)]
    digest: Annotated[str, msgspec.Meta(min_length=64, max_length=64)]
    size: Annotated[int, msgspec.Meta(ge=1)]
    offset: Annotated[int, msgspec.Meta(ge=0)]
    data: Annotated[bytes, msgspec.Meta(max_length=MAX_UPLOAD_CHUNK_BYTES)]


class UploadModel(Message, frozen=True, gc=False, tag=246):
    """Upload a model's file to the asked agent, piece by piece; the agent verifies the hash after the last piece.

    `name`: of the application that is to use it; `digest`, `size`: of the file.
    """

    name: Annotated[str, msgspec.Meta(max_length=64)]
    digest: Annotated[str, msgspec.Meta(min_length=64, max_length=64)]
    size: Annotated[int, msgspec.Meta(ge=1)]
    offset: Annotated[int, msgspec.Meta(ge=0)]
    data: Annotated[bytes, msgspec.Meta(max_length=MAX_UPLOAD_CHUNK_BYTES)]
