"""Deployment of an application: JOIN, survey of the path, plan, deployment in waves, from the submission to `running`."""
