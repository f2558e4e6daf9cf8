"""Applications that change by themselves: what is measured is decided on, and asked for at who coordinates the run."""
