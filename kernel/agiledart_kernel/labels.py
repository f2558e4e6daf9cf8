"""Labels of nodes: names of abilities, such as `gpu` or `room.2`, that users give to nodes and that steps may need."""

import re
from typing import Final

MAX_LABEL: Final = 64
"""Greatest length of a label."""

MAX_LABELS: Final = 16
"""Labels of one node, or of one step."""

_LABEL: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_LABEL - 1}}}")


def is_label(text: str) -> bool:
    """Report whether a text may be a label: letters, digits and `-`, `_`, `.`, a letter or digit first."""
    return _LABEL.fullmatch(text) is not None
