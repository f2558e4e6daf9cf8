"""Path policies, one file each, with only the code that differs. `agiledart_shuffle.registry` has them by name."""
