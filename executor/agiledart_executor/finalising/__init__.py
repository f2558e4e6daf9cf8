"""Files of runs that have ended, finished in a process of their own."""
