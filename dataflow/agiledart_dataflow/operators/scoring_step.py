"""`ScoringStep`: runs a `ModelScorer` on all rows between two models at once."""

from typing import Any

from agiledart_dataflow.data.position import Position
from agiledart_dataflow.operators.broadcast import BroadcastStep
from agiledart_dataflow.operators.model_access import ModelAccess
from agiledart_dataflow.operators.model_scorer import ModelScorer


class ScoringStep(BroadcastStep):
    """Broadcast step without state by key and timers. Rows of which one raises are treated one by one, as the error policy says."""

    def use_models(self, models: ModelAccess) -> None:
        """Take models by hash, and the memory to load one, from this process."""
        scorer = self._operator
        assert isinstance(scorer, ModelScorer)
        scorer.models = models

    def _pass(
        self, rows: list[Any], positions: list[Position], watermark: Position, out: list[Any], at: list[Position]
    ) -> None:
        scorer = self._operator
        assert isinstance(scorer, ModelScorer)
        try:
            scored = scorer.scored(rows, self._step.context.shared) if rows else []
        except Exception:  # noqa: BLE001  the rows are tried again below, where the error has its row
            super()._pass(rows, positions, watermark, out, at)
            return
        out += scored
        at += [(*position, -1, 0) for position in positions]
        self.counts.rows_in += len(rows)
        self.counts.rows_out += len(rows)
        self.counts.taken += len(rows)
