"""The judge of placements: the only room with formulas of metrics, for whole placements and for single moves."""
