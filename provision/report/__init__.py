"""Writes the text of an issue: gpuenv, the machine and an environment, without personal data.

It reads no files. The text is Markdown with fenced sections, so that no content is interpreted as markup."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from urllib.parse import urlsplit

from ..index import uv
from ..model import (
    FRAMEWORKS,
    Evidence,
    Finding,
    IssueReport,
    Lock,
    Machine,
    Plan,
    RejectedBuild,
    StageResult,
    Verdict,
    is_stack_package,
    normalize_name,
)
from ..model.values import Value
from ..system.redaction import STARS, clean, redact_text

# In addition to the stack: conda packages with parts of it, and numeric libraries of frameworks
_LIBRARIES = re.compile(
    r"pytorch.*|triton.*|tensorflow.*|tf-.*|jax.*|libtorch|numpy|"
    r"cuda-.*|cudnn|libcu.*|libnv.*|nccl|ml-dtypes|mkl|libblas"
)
_LINES, _LONG = 12, 400


class ReportFacts(Value):
    """The facts of a report. `sources` are the package sources, `problems` the unreadable files.

    What checks printed is part of the report only with `include_checks`.
    """

    gpuenv: str
    python: str
    machine: Machine
    when: str
    env: str | None = None
    ours: bool = True
    plan: Plan | None = None
    lock: Lock | None = None
    verdict: Verdict | None = None
    verified: str | None = None
    sources: tuple[str, ...] = ()
    include_checks: bool = False
    problems: tuple[str, ...] = ()


def write_report(facts: ReportFacts, personal: PersonalData) -> IssueReport:
    """Return the anonymized report, with a count of hidden items by kind."""
    text, counts = anonymize_text(_render(facts), personal)
    return IssueReport(gpuenv=facts.gpuenv, text=text, hidden=counts)


def _render(facts: ReportFacts) -> str:
    """Return the text before anonymization."""
    parts = [("Machine", list(_format_machine(facts.machine)))]
    variables = [f"{k}={v}" for k, v in facts.machine.environment.items()]
    parts += [("Variables", variables), ("Where packages come from", list(facts.sources))]
    parts += [("Environment", list(_format_environment(facts)))]
    if facts.lock:
        parts.append(("Locked packages", list(_format_packages(facts.lock))))
    if facts.verdict:
        verdict = facts.verdict if facts.include_checks else _omit_check_output(facts.verdict)
        when = f" ({facts.verified})" if facts.verified else ""
        outcome = "works on the CPU" if verdict.verdict == "cpu" else verdict.verdict
        parts.append((f"Last verdict{when}: {outcome}", list(_format_verdict(verdict))))
    if facts.problems:
        parts.append(("Could not be read", list(facts.problems)))
    head = f"gpuenv {facts.gpuenv}, Python {facts.python}, {facts.when}"
    return "\n".join([head, "", *(_format_section(title, rows) for title, rows in parts if rows)])


def _format_section(title: str, rows: list[str]) -> str:
    body = "\n".join(_format_line(row) for row in rows)
    return f"### {title}\n\n```text\n{body}\n```\n"


def _format_line(text: str) -> str:
    """Return one line of limited length that cannot end the fence."""
    text = clean(text).replace("\n", " ").replace("```", "'''")
    return text if len(text) <= _LONG else text[:_LONG] + " ..."


def _format_machine(machine: Machine) -> Iterator[str]:
    target, driver, context = machine.target, machine.driver, machine.context
    yield f"platform  {target.platform}, glibc {target.glibc or 'unknown'}"
    if driver.library or driver.kernel_module:
        yield (
            f"driver    {driver.library or 'unknown'}, kernel module {driver.kernel_module or 'unknown'}, supports CUDA "
            f"{driver.cuda or 'unknown'}, read from {driver.source}"
        )
    elif not driver.problem:
        yield "driver    none"
    if driver.libcuda:
        yield f"libcuda   {driver.libcuda}"
    if driver.problem:
        yield f"problem   {driver.problem}"
    for gpu in machine.gpus:
        mig = f", MIG {' '.join(gpu.mig)}" if gpu.mig else ""
        yield f"GPU {gpu.index}     {gpu.name}, capability {gpu.capability}, {gpu.memory_mib} MiB, {gpu.uuid}{mig}"
    contexts = [context.container, "WSL" if context.wsl else None, "Colab" if context.colab else None]
    contexts += [f"Slurm {context.slurm}" if context.slurm else None]
    if any(contexts):
        yield f"context   {', '.join(x for x in contexts if x)}"
    for device in machine.hardware:
        yield f"hardware  {device.vendor} {device.device or ''} at {device.address}"
    for python in machine.pythons:
        yield f"Python    {python.version} ({python.source}) {python.path}"
    for library in machine.libraries:
        yield f"library   {library.soname} {library.version or ''} {library.path}"
    for finding in machine.findings:
        yield from _format_finding(finding)


def _format_environment(facts: ReportFacts) -> Iterator[str]:
    if facts.env is None:
        yield "no environment: .venv is missing"
        return
    yield f"path      {facts.env}" + ("" if facts.ours else " (not made by gpuenv)")
    plan = facts.plan
    if plan is None:
        return
    request = f"{plan.manager}, device {plan.device}, Python {plan.python}, {plan.platform}"
    yield f"made with {request}"
    for build in plan.builds:
        kind = f"CUDA {build.cuda}, cuDNN {build.cudnn or 'none'}" if build.cuda else "CPU build"
        yield f"build     {build.framework} {build.version}, {kind}, from {build.index}"
    if plan.device == "cuda":
        yield f"made for  {plan.target.words}"
    for note in plan.notes:
        yield f"note      {note}"
    newest: dict[str, RejectedBuild] = {}
    for row in plan.rejected:
        if row.reasons and row.reasons[0].code != "not_requested":
            newest.setdefault(row.framework, row)
    for row in newest.values():
        yield f"not       {row.framework} {row.version} ({row.index}): {row.reasons[0].text}"


def _format_packages(lock: Lock) -> Iterator[str]:
    names = ((normalize_name(p.name), p) for p in lock.packages)
    main = sorted((p.name, p.version) for n, p in names if is_stack_package(n) or _LIBRARIES.fullmatch(n))
    yield from (f"{name} {version}" for name, version in main)
    yield f"and {len(lock.packages) - len(main)} more"


def _format_verdict(verdict: Verdict) -> Iterator[str]:
    for stage in verdict.stages:
        yield from _format_stage(stage)
    for framework in verdict.frameworks:
        if framework.cuda:
            built, loaded = framework.cudnn_built or "none", framework.cudnn_loaded or "none"
            yield f"{framework.name} {framework.version}: CUDA {framework.cuda}, built for cuDNN {built}, loaded cuDNN {loaded}"
        for library in framework.libraries:
            if library.inside is False:
                yield f"  from outside the environment: {library.soname} {library.version or ''} {library.path}"
    for finding in verdict.findings:
        yield from _format_finding(finding)


def _omit_check_output(verdict: Verdict) -> Verdict:
    """Return a verdict without what checks printed: their programs may print anything."""
    labels = [check.label for check in verdict.checks]
    failed = ", ".join(check.label for check in verdict.checks if check.status == "fail")
    stages = [
        replace(s, evidence=(), detail=f"failed: {failed}; --include-checks adds the output" if s.status == "fail" else s.detail)
        if s.stage == "checks" else s
        for s in verdict.stages
    ]  # fmt: skip
    findings = [
        replace(f, evidence=tuple(e for e in f.evidence if e.source not in labels)) for f in verdict.findings
    ]
    return replace(verdict, stages=tuple(stages), findings=tuple(findings))


def _format_stage(stage: StageResult) -> Iterator[str]:
    name = " ".join(x for x in (stage.stage, stage.framework, stage.device) if x)
    yield f"{stage.status.ljust(4)}  {name.ljust(28)}  {stage.detail}"
    if stage.status in ("fail", "warn"):
        yield from _format_evidence(stage.evidence)


def _format_finding(finding: Finding) -> Iterator[str]:
    yield f"finding   {finding.cause} ({finding.confidence}): {finding.title}"
    yield from _format_evidence(finding.evidence)


def _format_evidence(evidence: tuple[Evidence, ...]) -> Iterator[str]:
    for item in evidence[:_LINES]:
        where = f"  [{item.source}{':' + str(item.line) if item.line else ''}]" if item.source else ""
        yield f"      > {item.text}{where}"
    if len(evidence) > _LINES:
        yield f"      > and {len(evidence) - _LINES} more"


# --- personal data: names, hosts, addresses, serial numbers --------------------------------------------
#
# They are hidden in the finished text instead of its sources, so that a path in a loader's message is hidden as well.
# An ambiguous text is hidden, because a missing version can be requested later. `redaction` has removed the secrets before.


class PersonalData(Value):
    """The data that identifies a machine and its user: home folders, user and real names, host names."""

    homes: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


# Names that do not identify a person or a machine, and words of the report
_WORDS = frozenset(
    (
        *FRAMEWORKS, "root", "user", "users", "admin", "home", "ubuntu", "debian", "jovyan", "runner", "vscode",
        "gpu", "cuda", "cudnn", "nvidia", "driver", "runtime", "python", "conda", "linux", "docker", "host",
        "node", "server", "localhost", "lib", "bin", "usr", "opt", "env", "venv", "test", "data", "local",
        "app", "work", "build", "project", "works", "fails", "wrong", "cpu",
    )
)  # fmt: skip
_PUBLIC = re.compile(
    r"(?:^|\.)(?:pytorch\.org|tensorflow\.org|python\.org|nvidia\.com|github\.com|"
    r"githubusercontent\.com|anaconda\.org|anaconda\.com|prefix\.dev|jax\.dev|googleapis\.com)$"
)
"""Public addresses, which do not identify a user."""

_URL = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]{1,20})://([^\s'\"`<>|()\[\],;]*)")
_HEX = re.compile(r"(?<![\w/.+-])(?![0-9a-fA-F]{64}(?!\w))[0-9a-fA-F]{32,}(?![\w/.+-])")
"""A long hexadecimal number. It may be a key, unless it has the length of a sha256."""

_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_UUID = re.compile(
    r"\b(?:(?:MIG|GPU)-){0,3}[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b|"
    r"\b(?:GPU|MIG)-(?=[a-f-]*\d)[0-9a-f]{4}[0-9a-f-]*(?![\w-])"
)
_SERIAL = re.compile(r"(?i)(\bserial(?:[ _-]?(?:number|no|num))?\b\W{0,4})([A-Z0-9]*\d[A-Z0-9]{4,})")
_MAC = re.compile(r"\b[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5}\b")
_ADDRESS = re.compile(
    r"\b(?:\d{1,3}\.){3}\d{1,3}(?=:\d{2,5}\b)|\b(?:192\.168|172\.(?:1[6-9]|2\d|3[01]))(?:\.\d{1,3}){2}\b"
)
"""An IPv4 address: four numbers alone may be a version (10.3.9.90 is one of cuRAND's)."""
_LOOPBACK = re.compile(r"127\.|0\.0\.0\.0")


_ANY_HOME = re.compile(r"((?:/home/|/Users/|\b[A-Za-z]:[\\/]+Users[\\/]+))(?!USER\b)[^\s/\\:'\"`,;)]+")


def anonymize_text(text: str, personal: PersonalData) -> tuple[str, dict[str, int]]:
    """Return the text without personal data, with a count by kind."""
    text = redact_text(text)
    counts = Counter(credentials=text.count(STARS))
    uuids: dict[str, int] = {}
    hosts = [name for host in personal.hosts for name in (host, host.partition(".")[0])]
    rows: list[tuple[str, re.Pattern[str], Callable[[re.Match[str]], str]]] = [
        ("addresses", _URL, _replace_address),
        ("e-mail addresses", _MAIL, lambda _: "MAIL"),
        ("UUIDs", _UUID, lambda m: f"(UUID {uuids.setdefault(m[0].lower(), len(uuids) + 1)})"),
        ("serial numbers", _SERIAL, lambda m: f"{m[1]}***"),
        ("hardware addresses", _MAC, lambda _: "(MAC)"),
        ("network addresses", _ADDRESS, lambda m: m[0] if _LOOPBACK.match(m[0]) else "(ADDRESS)"),
        ("credentials", _HEX, lambda _: STARS),
        *(("home folders", pattern, lambda _: "~") for pattern in _find_homes(personal.homes)),
        ("home folders", _ANY_HOME, lambda m: f"{m[1]}USER"),
        *(("user names", pattern, lambda _: "USER") for pattern in _find_names(personal.users)),
        *(("host names", pattern, lambda _: "HOST") for pattern in _find_names(hosts)),
    ]
    for kind, pattern, hide in rows:
        counts[kind] += sum(hide(match) != match[0] for match in pattern.finditer(text))
        text = pattern.sub(hide, text)
    return text, dict(sorted((k, n) for k, n in counts.items() if n))


def _find_homes(homes: Iterable[str]) -> Iterator[re.Pattern[str]]:
    for home in sorted({*homes}, key=len, reverse=True):
        if len(home) > 1:
            yield re.compile(rf"(?<![\w.~-]){re.escape(home)}(?![\w-]|\.\w)")


def _find_names(names: Iterable[str]) -> Iterator[re.Pattern[str]]:
    """Yield a pattern for each name as a whole word, for names of two letters only in their exact case.

    A name that is a common word stays, except in `/home/NAME`, which is always hidden.
    """
    for name in sorted({*names}, key=len, reverse=True):
        if len(name) > 1 and name.lower() not in _WORDS and not (name.isdigit() and len(name) < 5):
            exactly = re.IGNORECASE if len(name) > 2 else 0
            yield re.compile(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", exactly)


def _is_public(host: str) -> bool:
    own = urlsplit(uv.own_index()).hostname
    return (
        bool(_PUBLIC.search(host))
        or host in ("127.0.0.1", "localhost", own)
        or bool(own and host.endswith(f".{own}"))
    )


def _replace_address(match: re.Match[str]) -> str:
    """Return an address without credentials, query and private host name."""
    scheme, rest = match[1], match[2]
    if scheme.lower() == "file":
        return match[0]
    authority, slash, path = rest.partition("/")
    host = authority.partition(":")[0]
    path = re.split(r"[?#]", path)[0]
    known = _is_public(host.lower())
    shown = authority if known else "HOST"
    # The path of a private index can name repositories, teams and users, so only its end is kept.
    tail = path if known else path.rpartition("/")[2] or path.rstrip("/").rpartition("/")[2]
    between = "/.../" if not known and "/" in path.rstrip("/") else slash
    return f"{scheme}://{shown}{between}{tail}" if tail else f"{scheme}://{shown}{slash}"
