"""Reasons for which rows move to another circuit."""

from typing import Final

FAULTS: Final = ("lost", "silent", "slow")
"""Reasons by which a circuit failed, whatever it carried."""

SWITCH_REASONS: Final = (*FAULTS, "thin", "better", "direct again")
"""Reasons, in order: the previous circuit was closed, did not answer, answered late, or carried too little; another circuit costs
less; the direct circuit answers well again."""
