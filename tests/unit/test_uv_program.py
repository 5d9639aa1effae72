"""uv's program is looked up by several threads at once: the standard library fills its configuration only once."""

import subprocess
import sys

THREADS = """
import sysconfig, threading, time
fill = sysconfig._init_posix
def fill_slowly(table):
    time.sleep(0.2)  # as on a busy machine
    fill(table)
sysconfig._init_posix, sysconfig._CONFIG_VARS = fill_slowly, None
from provision.index import uv
found, start = [], threading.Barrier(8)
def look():
    start.wait()
    found.append(uv.program())
threads = [threading.Thread(target=look) for _ in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
assert len(found) == 8 and len(set(found)) == 1, found
"""


def test_many_threads_find_the_program():
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
