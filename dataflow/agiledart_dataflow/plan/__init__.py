""".

What a graph has become before it runs: steps and their kinds, stages, what an edge carries, connectors, what each host
deploys.
"""
