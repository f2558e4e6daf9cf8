"""Same seed, two processes, two hash seeds: the same run, message by message."""

import os
import subprocess
import sys

SCRIPT = """
from tests.simulation.mesh import Mesh, pipeline
from agiledart_kernel.instants import SECOND
from agiledart_simulation.world.trace import Trace
mesh = Mesh(11, 8)
mesh.world._trace = trace = Trace()
mesh.build()
mesh.submit("a2", pipeline("job", source_at="a1,a3", sink_at="a8", sources=2), parallelism={"": 4})
mesh.submit("a3", pipeline("other", sink_at="a5"))
mesh.crash("a8")
mesh.world.run_for(5 * SECOND)
print(mesh.world.events, trace.digest, sorted(mesh.state_everywhere("job").items()))
"""


def test_two_hash_seeds_give_one_trace() -> None:
    outputs = []
    for hash_seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]
    assert "failed" in outputs[0]
