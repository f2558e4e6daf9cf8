"""Apache Storm beside AgileDART: the applications of figure 9 as Storm's topologies, on a node of its own processes."""
