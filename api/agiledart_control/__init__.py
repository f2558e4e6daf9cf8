"""Control of a mesh from Python: the agent that is asked, the connection to it, submissions, applications that run."""
