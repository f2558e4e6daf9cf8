"""One policy a file: what sets it apart and nothing else. `agiledart_shuffle.registry` knows them by name."""
