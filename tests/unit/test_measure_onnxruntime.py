"""The CUDA and cuDNN of a GPU wheel of ONNX Runtime: what it states, else the documented row of its CUDA major."""

from packaging.version import Version
from rows import rows

from provision.index.simple_api import File
from provision.profiles.measure.builds import GPU_PACKAGE, onnxruntime_rows
from provision.profiles.measure.reader import ReleaseWheels, WheelFile

DOCUMENTS = {"tested": [{"version": "1.18", "cuda": "11.8", "cudnn": ">=8.2.4,<9"}]}


class Measured:
    """A reader of one GPU wheel with known facts."""

    def __init__(self, version, **fact):
        name = f"onnxruntime_gpu-{version}-cp312-cp312-manylinux_2_28_x86_64.whl"
        file = File(name=name, url=f"https://host/{name}", sha256="a" * 64)
        wheel = WheelFile(
            file=file, version=Version(version), platform="linux-x86_64", python="3.12", glibc="2.28", order=(0, "")
        )  # fmt: skip
        self.gpu = [ReleaseWheels(Version(version), "linux-x86_64", [wheel])]
        self.fact = {
            "cuda": None, "majors": ["11"], "cudnn": ["8"], "kernels": "8.0", "requires": [], "sha256": "a" * 64,
            "bytes": 1, **fact,
        }  # fmt: skip
        self.problems = []

    def builds(self, project, _oldest):
        return self.gpu if project == GPU_PACKAGE else []

    def measured(self, builds, _kind, _measure=None):
        return [(build, self.fact) for build in builds]

    def add_problem(self, text):
        self.problems.append(text)


@rows(
    ("version", "fact", "found"),
    [
        ("1.18.0", {}, ("11.8", ">=8.2.4,<9")),
        ("1.18.0", {"cuda": "11.8"}, ("11.8", ">=8.2.4,<9")),
        ("1.18.0", {"cuda": "12.4", "majors": ["12"]}, ("12.4", "==8.*")),
        ("1.21.0", {"cuda": "12.8", "majors": ["12"], "cudnn": ["9"]}, ("12.8", "==9.*")),
    ],
)
def test_a_wheel_without_a_stated_release_has_the_documented_one(version, fact, found):
    reader = Measured(version, **fact)
    (row,) = onnxruntime_rows(reader, DOCUMENTS)
    assert (row["cuda"], row["cudnn"]) == found and not reader.problems


@rows(("version", "majors"), [("1.18.0", ["12"]), ("1.19.0", ["11"])])
def test_a_wheel_without_any_cuda_release_is_a_problem_and_no_row(version, majors):
    reader = Measured(version, majors=majors)
    assert onnxruntime_rows(reader, DOCUMENTS) == []
    (problem,) = reader.problems
    assert problem.startswith(f"onnxruntime-gpu {version}: ") and "CUDA" in problem
