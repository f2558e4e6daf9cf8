"""The command `agiledart`: verbs, the client that talks to an agent, tables and JSON.

The top of the layers: may import every other package. A verb's module is imported when that verb runs, and rich only
when a live view is shown, so that `agiledart --help` answers at once. Data goes to stdout, talk to stderr.
"""
