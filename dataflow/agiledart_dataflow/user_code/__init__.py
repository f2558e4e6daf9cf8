"""Facts about users' code: where a step was written, which errors it raised, which resource limits it has.

The package imports the kernel only.
"""
