"""What the engine knows of users' code: where a step was written, which errors it raised, how much it may use.

It imports the kernel only.
"""
