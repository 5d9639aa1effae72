"""The verdict of the stage verify alone, on an environment of any kind."""

from provision.model import Profiles
from provision.verify import device_of, run_early_probes, verify as run_stages


def verify(env, options, *, emit, lock=None, read_machine=lambda: None, diagnose=lambda *_: (), releases=()):
    """What the steps of a proof give: the first probes, what is known, the stages."""
    driver, rows = device_of(options, lock)[0] != "cpu", lambda: Profiles(cudnn=tuple(releases))
    with run_early_probes(env, options, driver=driver, machine=read_machine, profiles=rows) as early:
        return run_stages(early, options, emit, lock, diagnose=diagnose)
