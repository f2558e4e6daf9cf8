"""Why rows go over to another circuit."""

from typing import Final

SWITCH_REASONS: Final = ("lost", "silent", "slow", "thin", "better", "direct again")
"""Why rows have gone over to another circuit: the one before was closed, answered nothing, answered late, carried too little;
another one costs less; the direct way is well again."""
