"""What diagnose says of a text beside an environment, for tests."""
# ruff: noqa: F811  # fixtures are imported by their names

import shutil

import pytest
from diagnosed import found
from known import KNOWN
from verify_stub import cudnn, env, pristine, record  # noqa: F401

from driver_stub import build, scenario

RELEASE = ("nvidia-cudnn-cu12", "9.14.0.64", "linux-x86_64")


@pytest.fixture
def whole(cudnn):
    """The folder of a cuDNN with every library that this release consists of."""
    site = cudnn.parents[2]
    (row,) = (r for r in KNOWN.cudnn if (r.package, r.version, r.platform) == RELEASE)
    for name in row.libraries:
        if not (cudnn / name).exists():
            shutil.copy(cudnn / "libcudnn.so.9", cudnn / name)
    shutil.rmtree(next(site.glob("nvidia_cudnn*")))
    record(site, "nvidia_cudnn_cu12", row.version, sorted(cudnn.iterdir()))
    return cudnn


@pytest.fixture
def diagnosed(gpuenv, env, whole, tmp_path):
    """The findings for a text beside `env`, under a driver that answers as a spec says."""

    def run(text, what="580-h200", **variables):
        (gpuenv.work / "a.log").write_text(text)
        alone = found(*text.splitlines())
        assert alone and "certain" not in {f.confidence for f in alone}
        driver = variables.pop("driver", "580.159.04")
        answers = dict(scenario(build(tmp_path / "driver", driver), what))
        gpuenv.env |= {**answers, **variables}
        done = gpuenv("diagnose", "a.log", "--env", str(env), "--json")
        assert done.code == 0, done.err
        run.err = " ".join(done.err.split())
        return done.json["findings"]

    return run


def leading(findings):
    return findings[0]["cause"], findings[0]["confidence"]
