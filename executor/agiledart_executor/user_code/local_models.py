"""`LocalModels`: the models of an application on this node, which its agent has fetched, and the memory to load one."""

import contextlib
import resource
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final

from agiledart_dataflow.operators.model_access import ModelMissingError
from agiledart_kernel.limits import MAX_MODEL_BYTES
from agiledart_sink_log.plain_files import read_plain

MEMORY_SHARE: Final = 0.8
"""Share of the machine's available memory that loading a model may take."""

_KIB: Final = 1_024


class LocalModels:
    """Models of one application.

    Args:
        folder: of their files; only the agent writes there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, digest: bytes) -> bytes:
        """Return the file of a model. Raises `ModelMissingError`: it is not here, or not what its hash says."""
        try:
            data = read_plain(self._folder / digest.hex(), MAX_MODEL_BYTES)
        except OSError:
            raise ModelMissingError(
                f"the model sha256:{digest.hex()[:12]}… is not on this node: send its file with  agiledart model APP FILE"
                "  before its name"
            ) from None
        if sha256(data).digest() != digest:
            raise ModelMissingError(
                f"the file of the model sha256:{digest.hex()[:12]}… on this node is damaged: send it again"
            )
        return data

    @contextlib.contextmanager
    def within_memory(self) -> Iterator[None]:
        """Bound the address space of this process, so that a model larger than the memory raises and kills no process."""
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        limit = _figure("/proc/self/status", "VmSize:") + int(MEMORY_SHARE * _figure("/proc/meminfo", "MemAvailable:"))
        bounds = [number for number in (limit, soft, hard) if number != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_AS, (min(bounds), hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _figure(path: str, name: str) -> int:
    """Return bytes of a line of the kernel's, `NAME: N kB`."""
    for line in Path(path).read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * _KIB
    raise ValueError(f"{path} has no line {name}")
