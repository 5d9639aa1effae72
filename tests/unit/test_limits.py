"""What a process may use, and the kernel's counts, read from files as kernels write them."""

import resource

import pytest
from rows import rows

from provision.system.process import foreground
from provision.system.process.foreground import OomKills


@pytest.fixture
def kernel(tmp_path):
    """Folders as /proc and /sys/fs/cgroup are."""
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    cgroups.mkdir()
    (proc / "meminfo").write_text("MemTotal:       16777216 kB\nMemFree: 1 kB\n")
    (proc / "vmstat").write_text("nr_free_pages 1\noom_kill 3\n")
    return proc, cgroups


def test_the_memory_of_the_machine_is_the_limit_without_a_cgroup(kernel):
    assert foreground.oom_kills(*kernel) == OomKills(3, None)
    assert foreground.memory(*kernel) == 16 << 30


def test_limits_are_read_from_cgroups_version_2(kernel):
    proc, cgroups = kernel
    (proc / "self" / "cgroup").write_text("0::/job.slice/step_1\n")
    folder = cgroups / "job.slice" / "step_1"
    folder.mkdir(parents=True)
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 12\noom 2\noom_kill 2\noom_group_kill 0\n")
    (folder / "memory.max").write_text("max\n")
    (folder.parent / "memory.max").write_text(f"{4 << 30}\n")
    assert foreground.oom_kills(proc, cgroups) == OomKills(3, 2)
    assert foreground.memory(proc, cgroups) == 4 << 30, "the limit of the folder above holds too"


def test_limits_are_read_from_cgroups_version_1(kernel):
    proc, cgroups = kernel
    (proc / "self" / "cgroup").write_text("9:name=systemd:/\n4:cpu,memory:/job\n0::/\n")
    folder = cgroups / "memory" / "job"
    folder.mkdir(parents=True)
    (folder / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 5\n")
    (folder / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert foreground.oom_kills(proc, cgroups) == OomKills(3, 5)
    assert foreground.memory(proc, cgroups) == 16 << 30


def test_limits_are_unknown_where_no_file_states_them(tmp_path):
    assert foreground.oom_kills(tmp_path, tmp_path) == OomKills(None, None)
    assert foreground.memory(tmp_path, tmp_path) is None


@rows(
    ("before", "after", "since"),
    [
        (OomKills(3, 1), OomKills(4, 2), (1, "cgroup")),
        (OomKills(3, None), OomKills(5, None), (2, "/proc/vmstat")),
        (OomKills(3, 1), OomKills(5, 1), (2, "/proc/vmstat")),
        (OomKills(3, 1), OomKills(3, 1), (0, "/proc/vmstat")),
        (OomKills(None, 1), OomKills(None, 1), None),
        (OomKills(None, None), OomKills(None, None), None),
    ],
)
def test_kills_since_an_earlier_reading_are_counted(before, after, since):
    assert after.since(before) == since


def test_a_limit_of_this_process_is_read():
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert foreground.limit("RLIMIT_NOFILE") == (None if soft == resource.RLIM_INFINITY else soft)
