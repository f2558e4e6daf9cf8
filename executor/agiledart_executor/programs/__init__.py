"""Programs that `python -m` starts: the worker process, the check of a bundle, and the loading of user code into both."""
