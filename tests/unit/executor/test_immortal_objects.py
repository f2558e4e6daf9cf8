"""Objects that are not counted: a process that uses what it inherited goes on sharing the pages, and works as before."""

import subprocess
import sys

import pytest

from agiledart_executor.process.immortal_objects import has_immortal_objects

USE = """
import enum, gc, json, os, re, socket, sys, types
from agiledart_executor.process.immortal_objects import keep_for_ever

class Reading:
    def __init__(self, value):
        self.value = value

class Colour(enum.Enum):
    RED = 1

word = "".join(["not", " ", "interned"])
made = Reading(5)
pair = socket.socketpair()
count = keep_for_ever()
gc.freeze()
pid = os.fork()
if pid == 0:
    assert sys.intern(word) == "not interned"
    gc.unfreeze()
    for _ in range(3):
        gc.collect()
    assert json.loads(json.dumps({"a": [1, 2.5, None]})) == {"a": [1, 2.5, None]}
    assert re.sub("(a)(b)", lambda match: match[2] + match[1], "ab") == "ba"
    assert Colour(1) is Colour.RED and Reading(7).value == 7
    Reading.__init__ = lambda self, value: setattr(self, "value", -value)
    assert Reading(7).value == -7
    del Reading.__init__, sys.modules["json"]
    import json as again
    assert again.loads("[1]") == [1]
    word += "!"
    assert word == "not interned!"
    for own in pair:
        own.close()
    try:
        raise ValueError(word)
    except ValueError as error:
        assert error.__traceback__.tb_frame.f_code.co_name == "<module>"
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
print(count, flush=True)
os._exit(0)
"""


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_forked_process_works_with_objects_that_are_not_counted() -> None:
    assert (int(run(USE)) > 5_000) == has_immortal_objects()


@pytest.mark.skipif(not has_immortal_objects(), reason="Python before 3.12 counts the references to each object")
def test_calls_of_inherited_functions_leave_their_counts_alone() -> None:
    program = (
        "import json, os, sys\nfrom agiledart_executor.process.immortal_objects import keep_for_ever\n"
        "keep_for_ever()\nbefore = sys.getrefcount(json.dumps), sys.getrefcount(json.dumps.__code__)\n"
        "held = [json.dumps] * 1_000\njson.dumps([1])\n"
        "print(before == (sys.getrefcount(json.dumps), sys.getrefcount(json.dumps.__code__)), flush=True)\nos._exit(0)\n"
    )
    assert run(program) == "True\n"
