"""`gpuenv detect --variant-properties`: what NVIDIA's provider of wheel variants reports."""

import pytest

from driver_stub import H200, V100, build, scenario, spec


@pytest.fixture
def properties(gpuenv, tmp_path):
    def run(cuda, gpus):
        gpuenv.env |= scenario(build(tmp_path / "driver"), spec(driver="580.159.04", cuda=cuda, gpus=gpus))
        return gpuenv("detect", "--variant-properties", "--json"), gpuenv("detect", "--variant-properties")

    return run


def test_the_properties_of_the_driver_and_of_the_best_gpu_are_listed(properties):
    document, shown = properties(12080, [V100, H200])
    said = document.json
    assert (said["cuda"], said["capability"], said["left_out"]) == ("12.8", "9.0", ["7.0"])
    assert shown.out.splitlines() == said["properties"]
    of = [p.removeprefix("nvidia :: ").split(" :: ") for p in said["properties"]]
    values = {feature: [v for f, v in of if f == feature] for feature, _ in of}
    assert len(said["properties"]) == 112  # as of nvidia-variant-provider 0.0.2
    lower, upper = values["cuda_version_lower_bound"], values["cuda_version_upper_bound"]
    assert (lower[:2], lower[8:11], lower[-1]) == (["12.8", "12.7"], ["12.0", "12", "11.20"], "11")
    assert (upper[:2], upper[-1], "12.9" in upper, "12" in upper) == (["15.20", "15.19"], "12.9", True, False)
    assert values["sm_arch"] == ["90_real", "90_virtual"]
    assert "speaks of 9.0 only, and not of 7.0" in shown.err


def test_a_machine_without_a_driver_has_none(gpuenv):
    ran = gpuenv("detect", "--variant-properties")
    assert (ran.code, ran.out) == (0, "") and "reports nothing" in ran.err
