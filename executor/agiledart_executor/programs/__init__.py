"""What `python -m` starts: the worker process, the check of a bundle, and the loading of users' code into them."""
