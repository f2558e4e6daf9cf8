"""How an application comes to be: JOIN, survey of the path, plan, deployment in waves, from the submission to `running`."""
