"""Control API: the port that an operator's command line reaches, and the service that answers it.

It imports identity and the node's machine, never an executor.
"""
