"""Local runs: a topology in one process, without agents (`agiledart run`)."""
