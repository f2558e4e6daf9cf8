"""Verb `agiledart place`: where operators should run, computed off line; comparison, examples, files of other tools."""
