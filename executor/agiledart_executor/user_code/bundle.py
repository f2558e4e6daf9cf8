"""Bundle of user code that travels to nodes so that they can run a user's builder again; source, never pickled objects."""

import sys
from hashlib import sha256

import msgspec

from agiledart_executor.user_code.user_modules import SHIPPED, shipped_source
from agiledart_kernel.codec import Codec
from agiledart_kernel.errors import OperationFailed
from agiledart_kernel.limits import MAX_BUNDLE_FILES


class Bundle(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=150):
    """User code as it travels. The signed submit command names its hash, so the bundle carries no signature.

    Attributes:
        entry: `module:name`.
        files: path → source of the user's own modules; empty when the entry is a shipped example.
        parameters: settings in the form of `--set`, connectors with absolute paths.
        installed: shipped modules that the code uses → SHA-256 of their source.
        requires: other packages that the code imports.
        python: oldest Python whose grammar accepts the files, `(major, minor)`.
        application: name in the signed command; empty for the topology's own name.
        software: version of AgileDart that made the bundle; empty for an older version, which did not record it.
        specification: format of specifications that it used; 0 for an older version.
        paths: paths that rows may take between nodes, in place of the topology's; empty for the topology's own.
    """

    entry: str
    files: dict[str, bytes]
    parameters: dict[str, str] = {}
    installed: dict[str, str] = {}
    requires: tuple[str, ...] = ()
    python: tuple[int, int] = (3, 11)
    application: str = ""
    software: str = ""
    specification: int = 0
    paths: tuple[str, ...] = ()


_CODEC: Codec[Bundle] = Codec(Bundle)


def encode_bundle(bundle: Bundle) -> bytes:
    """Encode a bundle into its wire form."""
    return _CODEC.encode(bundle)


def decode_bundle(raw: bytes) -> Bundle:
    """Decode a bundle from its wire form. Raises `RemoteProtocolError`."""
    return _CODEC.decode(raw)


def check_bundle(bundle: Bundle) -> None:
    """Raise `OperationFailed`, with a text for users, when this node lacks a requirement of a bundle."""
    if not bundle.files and bundle.entry.partition(":")[0] not in bundle.installed:
        raise OperationFailed(f"The bundle holds no source of {bundle.entry}.")
    if len(bundle.files) > MAX_BUNDLE_FILES:
        raise OperationFailed(f"The bundle has {len(bundle.files)} files, a node takes {MAX_BUNDLE_FILES}.")
    for name in bundle.files:
        if not _is_inside(name):
            raise OperationFailed(f"The bundle names a file outside its folder: {name[:80]!r}. Pack it again.")
    if tuple(bundle.python) > sys.version_info[:2]:
        needed, present = ".".join(map(str, bundle.python)), ".".join(map(str, sys.version_info[:2]))
        raise OperationFailed(f"The code is written for Python {needed} or newer, this node has {present}.")
    for module, digest in sorted(bundle.installed.items()):
        if module.partition(".")[0] != SHIPPED:
            raise OperationFailed(f"{module} is not one of the shipped examples, so it has to travel with the bundle.")
        source = shipped_source(module)
        if source is None or sha256(source).hexdigest() != digest:
            state = "does not have" if source is None else "has another version of"
            raise OperationFailed(
                f"This node {state} {module}. Install the same AgileDart on all nodes, "
                f"or copy the file and submit the copy."
            )


def _is_inside(name: str) -> bool:
    """Return whether a name is a relative path to a Python file that no part leads out of."""
    parts = name.split("/")
    return (
        name.endswith(".py")
        and "\0" not in name
        and "\\" not in name
        and all(part not in ("", ".", "..") for part in parts)
    )
