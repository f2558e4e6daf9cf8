"""Records on the ring: state and history of applications, their summaries, and the locations of sink logs."""
