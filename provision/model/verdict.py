"""The verdict on an environment: its stages, the checks of the project, and the diagnosis of a failure."""

from .environment import EnvironmentChange
from .machine import Evidence, Finding, LibraryFile
from .values import Value
from .words import CheckKind, Device, Outcome, Status


class CheckResult(Value):
    """The result of a check.

    `returncode` is None if the program did not start. `output` are the last lines that it printed.
    """

    label: str
    kind: CheckKind
    subject: str
    status: Status
    detail: str
    returncode: int | None = None
    signal: str | None = None
    timed_out: bool = False
    seconds: float | None = None
    output: tuple[str, ...] = ()


class StageResult(Value):
    """The result of one stage, in this order: driver, runtime, libraries, cudnn, peers; framework, convolution, matmul,
    attention, loaded and operations of each framework; variants, lock, packages, checks."""

    stage: str
    status: Status
    detail: str
    framework: str | None = None
    device: str | None = None
    seconds: float | None = None
    evidence: tuple[Evidence, ...] = ()


class GradedResult(Value):
    """One graded result. `max_error` is relative, by norm, against a float64 reference.

    `pass_` is forward or a gradient, as grad_input or grad_key (`pass` in JSON).
    """

    case: str
    dtype: str
    pass_: str
    max_error: float | None
    tolerance: float
    ok: bool


class DeviceVerdict(Value):
    """A device as the framework sees it: `index` is the CUDA ordinal (-1 for the CPU)."""

    index: int
    uuid: str | None = None
    name: str | None = None
    capability: str | None = None
    convolutions: tuple[GradedResult, ...] = ()
    matmuls: tuple[GradedResult, ...] = ()
    attentions: tuple[GradedResult, ...] = ()

    @property
    def results(self) -> tuple[GradedResult, ...]:
        """All that was graded on the device."""
        return (*self.convolutions, *self.matmuls, *self.attentions)


class FrameworkVerdict(Value):
    """The results of one framework. cuDNN versions here have three parts, as cuDNN reports them."""

    name: str
    version: str | None = None
    cuda: str | None = None
    cudnn_built: str | None = None
    cudnn_loaded: str | None = None
    devices: tuple[DeviceVerdict, ...] = ()
    libraries: tuple[LibraryFile, ...] = ()


class Verdict(Value):
    """The verdict on an environment: the worst of its stages.

    It is `unproven` if no stage that runs code of the environment passed. `drift` is the differences from its lock.
    `unhashed` are packages without a hash (folders, commits), with their addresses. `made_for` is the device of its
    lock, or None without a lock. `checks` are those of the project, and those of this call.
    """

    SCHEMA = "gpuenv.verdict/1"

    env: str
    python: str
    verdict: Outcome
    stages: tuple[StageResult, ...] = ()
    frameworks: tuple[FrameworkVerdict, ...] = ()
    findings: tuple[Finding, ...] = ()
    hint: str | None = None
    drift: tuple[EnvironmentChange, ...] = ()
    unhashed: tuple[str, ...] = ()
    made_for: Device | None = None
    checks: tuple[CheckResult, ...] = ()

    @property
    def failed(self) -> StageResult | None:
        """The first stage that failed."""
        return next((s for s in self.stages if s.status == "fail"), None)


class NodeVerdict(Value):
    """The answer whether a machine has a fault, from the verdict on one environment.

    `cause` is a label of the taxonomy or the name of a stage, also for other failures. `text` is one line of fewer
    than 80 characters. `hung` says that the driver did not answer in time.
    """

    SCHEMA = "gpuenv.node/1"

    fault: bool
    text: str
    cause: str | None = None
    verdict: Verdict | None = None
    hung: bool = False


class ContextValue(Value):
    """What a text says of its program or its place, and the line that says it."""

    name: str
    value: str
    evidence: Evidence


class Findings(Value):
    """The findings of `diagnose`, the likeliest first, and the context of the logs."""

    SCHEMA = "gpuenv.findings/1"

    findings: tuple[Finding, ...] = ()
    context: tuple[ContextValue, ...] = ()


def is_expected(verdict: Verdict, device: str | None, *, asked_cpu: bool = False) -> bool:
    """Return whether a verdict matches the device of the environment's lock. `cpu` does not for a GPU environment, unless
    the CPU was requested."""
    return verdict.verdict == "works" or (verdict.verdict == "cpu" and (asked_cpu or device != "cuda"))
