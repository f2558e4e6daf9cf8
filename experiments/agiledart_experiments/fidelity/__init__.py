"""One page of fidelity: for each panel of the papers, what is computed here, on what, and beside which values."""
