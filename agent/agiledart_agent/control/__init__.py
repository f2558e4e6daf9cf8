"""What an operator's command line reaches: the control port and the desk that answers it.

It imports identity and the node's machine, never an executor.
"""
