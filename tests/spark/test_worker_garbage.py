"""Loaded modules are left out of the collections of garbage in processes that Spark's daemon uses again, and in no other."""

import subprocess
import sys

CODE = """
import gc, sys, __main__
from pyspark_agiledart.worker_garbage import leave_out_loaded_modules
leave_out_loaded_modules()
before = gc.get_freeze_count()
__main__.__spec__ = __import__("importlib.machinery").machinery.ModuleSpec("pyspark.daemon", None)
leave_out_loaded_modules()
frozen = gc.get_freeze_count()
more = [[] for _ in range(100)]
leave_out_loaded_modules()
print(before == 0, frozen > 1_000, gc.get_freeze_count() == frozen)
"""


def test_a_worker_that_is_used_again_leaves_loaded_modules_out_once() -> None:
    ran = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert ran.stdout == "True True True\n"
