"""cuDNN's API log through a pipe: all of it is read, what tells something is kept, none of it is on a disk."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from provision.verify import probe

JUNK = "i!     attributeName: type=cudnnBackendAttributeName_t; val=CUDNN_ATTR_ENGINE_GLOBAL_INDEX (1301);\n"
CALL = "\nI! CuDNN (v91900 56) function cudnnBackendExecute() called:\n"
OTHER = "\nI! CuDNN (v91900 56) function cudnnBackendFinalize() called:\n"
ERROR = "e!     Error: CUDNN_STATUS_INTERNAL_ERROR; Reason: out of memory\n"
WRITES = f"""
import os, sys
times = int(sys.argv[1])
with open(os.environ["CUDNN_LOGDEST_DBG"], "w") as log:
    for _ in range(times):
        log.write({OTHER!r} + {JUNK!r} * 1000 + {CALL!r} + {JUNK!r} * 20)
        log.flush()
    log.write({ERROR!r})
"""


def write(log, times):
    subprocess.run([sys.executable, "-c", WRITES, str(times)], env={**os.environ, **log.environ}, check=True)


def no_pipe(_path):
    raise PermissionError(1, "Operation not permitted")


@pytest.mark.parametrize("pipe", [True, False])
def test_every_call_and_the_last_error_are_kept_of_a_log_of_many_mb(tmp_path, monkeypatch, pipe):
    if not pipe:
        monkeypatch.setattr(os, "mkfifo", no_pipe)
    with probe.collect_log(tmp_path) as log:
        write(log, 600)
        on_disk = sum(p.stat().st_size for p in tmp_path.iterdir())
    assert log.text.count("cudnnBackendExecute() called") == 600
    assert log.text.endswith(ERROR)
    assert "GLOBAL_INDEX" not in log.text
    assert (on_disk == 0) is pipe
    assert pipe or on_disk > 50_000_000


def test_a_log_without_a_computing_call_is_empty(tmp_path):
    with probe.collect_log(tmp_path) as log:
        Path(log.environ["CUDNN_LOGDEST_DBG"]).write_text(OTHER)
    assert log.text == ""


def test_several_writers_one_after_another_are_read(tmp_path):
    with probe.collect_log(tmp_path) as log:
        for _ in range(3):
            write(log, 1)
    assert log.text.count("cudnnBackendExecute() called") == 3


def test_a_process_that_is_left_behind_does_not_hold_the_end(tmp_path):
    with probe.collect_log(tmp_path) as log:
        write(log, 1)
        left = subprocess.Popen(
            ["sh", "-c", 'exec 9> "$CUDNN_LOGDEST_DBG"; exec sleep 60'], env={**os.environ, **log.environ}
        )
    try:
        assert left.poll() is None
        assert log.text.count("called") == 1
    finally:
        left.kill()
        left.wait()
