"""Make findings of candidates, in order: a proof first, then certain causes, lower layers before upper ones.

Titles and fixes get the facts of the text, and versions that `resolve` chooses for its driver and GPU. Earlier
installs and processes that use the GPU are added to the findings that they may explain.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ..model import (
    CONFIDENCES,
    TO_CHECK,
    Evidence,
    Finding,
    GpuMemoryHolder,
    Machine,
)
from ..profiles.wording import SLOT, choose_fix, fill_text
from .case import FAINT, Candidate, Case
from .lines import Line
from .slots import is_fragmented

_SHOWN = 5
_EVIDENCE = 6
_WITHOUT_GPU = frozenset(
    ("system_library_missing", "python_package_missing", "package_files_damaged", "process_limit_reached",
     "variable_breaks_framework")
)  # fmt: skip


# --- order -------------------------------------------------------------------------------------


def rank(
    found: Sequence[Candidate], case: Case, ruled_out: Collection[str]
) -> tuple[list[Finding], list[Candidate]]:
    """Return the proofs of verify and detect, and the causes that the text shows beside them, the best first.

    Only a certain candidate may name a cause that is `ruled_out`. Facts that are not of the text prove nothing, unless the
    text is of this machine.
    """
    if not case.circumstances.is_of_machine:
        found = [
            replace(c, confidence="likely")
            if c.confidence == "certain" and not set(c.evidence).isdisjoint(case.added)
            else c
            for c in found
        ]

    def order(c: Candidate) -> tuple[int, int, int]:
        layer, sure = int(case.causes[c.cause].layer), _get_rank(c)
        return (sure, layer, -c.weight) if sure == 0 else (sure, -c.weight, layer)

    best = sorted(_merge(found, case, ruled_out), key=order)
    proved = _list_proved(case, best)
    best = [c for c in best if c.cause not in {f.cause for f in proved}]
    if best and best[0].confidence == "certain":
        best = best[:1] + [c for c in best[1:] if c.confidence != "possible"]
    return proved, best[: max(0, _SHOWN - len(proved))]


def join(proved: Sequence[Finding], shown: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return all findings. A possible one of detect does not come before a proof of the text."""
    first = [f for f in proved if f.confidence != "possible"]
    guessed = [f for f in proved if f.confidence == "possible"]
    return (*first, *sorted((*guessed, *shown), key=_get_rank))


def _get_rank(one: Candidate | Finding) -> int:
    return CONFIDENCES.index(one.confidence)


def _merge(candidates: Iterable[Candidate], case: Case, ruled_out: Collection[str]) -> list[Candidate]:
    """Return one candidate per cause: the heaviest one, with the evidence of all."""
    by_cause: dict[str, Candidate] = {}
    for new in sorted(candidates, key=lambda c: (_get_rank(c), -c.weight)):
        if new.cause in case.excluded and "device" not in new.slots:
            continue  # in an environment for the CPU, only its own judge may name the GPU
        only = case.causes[new.cause].only
        if only and not (case.facts.holds(f"system={only}") or case.facts.holds(f"os={only}")):
            continue  # no sign of the platform
        if new.cause in ruled_out and new.confidence != "certain":
            continue
        old = by_cause.setdefault(new.cause, new)
        if old is not new:
            evidence = tuple(dict.fromkeys((*old.evidence, *new.evidence)))[:_EVIDENCE]
            weight = max(old.weight, new.weight)
            by_cause[new.cause] = replace(
                old,
                evidence=evidence,
                weight=weight,
                title=old.title or new.title,
                slots={**{k: v for k, v in new.slots.items() if k not in ("rule", "case")}, **old.slots},
            )
    return [c for c in by_cause.values() if c.weight >= FAINT]


def _list_proved(case: Case, best: Sequence[Candidate]) -> list[Finding]:
    """Return the findings of verify and detect that come before those of the text.

    A machine with another driver than the text's is not the text's machine. Of a machine that may be, certain
    findings count. Likely ones count if it has GPUs and the text allows the cause too. None counts if the first cause
    of the text does not concern a GPU, such as a missing package.
    """
    machine, verdict = case.circumstances.machine, case.circumstances.verdict
    found = list(_confirm(verdict.findings, case, best)) if verdict else []
    if verdict and case.lines and verdict.verdict not in ("fails", "wrong"):
        # Warnings on an environment that works: the text shows something else, unless it shows them too.
        seen = {c.cause for c in best}
        found = [f if f.cause in seen else replace(f, confidence="possible") for f in found]
    unrelated = bool(best) and (
        (best[0].confidence != "possible" and not case.causes[best[0].cause].about_gpu)
        or best[0].cause in _WITHOUT_GPU
    )
    if machine and not unrelated:
        agreed = {c.cause for c in best} if machine.gpus else set()
        if case.circumstances.ran or not case.lines:
            found += machine.findings
        elif not case.names_other_driver():
            found += [
                f
                for f in machine.findings
                if f.confidence == "certain" or (f.confidence == "likely" and f.cause in agreed)
            ]
    once = dict[str, Finding]()
    for finding in sorted(found, key=_get_rank):
        if finding.cause not in case.excluded:
            once.setdefault(finding.cause, finding)
    return list(once.values())[:_SHOWN]


def _confirm(findings: Iterable[Finding], case: Case, best: Iterable[Candidate]) -> Iterator[Finding]:
    """Yield the findings of an environment, certain if the text confirms them.

    A package can require a library or a symbol that nothing loads, so its files prove little. A text in which the
    loader does not find this library, or in which this package does not load, proves that it was needed. So does a
    text that proves the same cause.
    """
    certain = {c.cause: c.evidence[:2] for c in best if c.confidence == "certain"}
    for finding in findings:
        shown: tuple[Evidence, ...] = ()
        if finding.confidence == "likely":
            shown = (
                _find_missing(finding, case) or _find_refused(finding, case) or certain.get(finding.cause, ())
            )
        evidence = tuple(dict.fromkeys((*finding.evidence, *shown)))
        yield replace(finding, evidence=evidence, confidence="certain") if shown else finding


def _find_missing(finding: Finding, case: Case) -> tuple[Evidence, ...]:
    """Return the line in which the loader does not find a library of the finding."""
    if finding.cause not in (
        "extension_built_for_other_torch_or_cuda", "system_library_missing", "nvidia_libs_not_on_loader_path",
    ):  # fmt: skip
        return ()
    named = {word.strip(",:;()") for e in finding.evidence for word in e.text.split()}
    missing = (f for f in case.facts.seen.get("missing", ()) if f.value in named and ".so" in f.value)
    return tuple(f.evidence for f in missing)[:1]


def _find_refused(finding: Finding, case: Case) -> tuple[Evidence, ...]:
    """Return the line in which a package of the finding, "NAME VERSION: ...", does not load its compiled code."""
    packages = {e.text.partition(" ")[0] for e in finding.evidence if ": " in e.text}
    if not packages or finding.cause not in (
        "extension_built_for_other_torch_or_cuda",
        "package_files_damaged",
    ):
        return ()
    spelled = "|".join(re.escape(name).replace(r"\-", "[-_.]") for name in sorted(packages))
    pattern = re.compile(rf"(?<![\w-])(?:{spelled})(?![\w-])", re.IGNORECASE)
    return tuple(line for line in case.find_message("extension_words") if pattern.search(line.text))[:1]


# --- words -------------------------------------------------------------------------------------


def make_finding(found: Candidate, slots: Mapping[str, str], case: Case) -> Finding:
    """Return the finding of a candidate. Its fix is the first row whose conditions hold and whose slots are known, after what
    the message itself proposes."""
    cause = case.causes[found.cause]

    def holds(condition: str) -> bool:
        name, equals, value = condition.partition("=")
        known = name in slots and (not equals or value == slots[name])
        return known or bool(case.find_condition(condition))

    title = fill_text(found.title or cause.title, slots)
    if SLOT.search(title):  # the title has an unknown fact
        title = fill_text(cause.title, slots)
    evidence = found.evidence[:_EVIDENCE]
    if found.confidence != "certain":
        decides = fill_text(found.slots.get("decides") or cause.decides, slots)
        evidence = (*evidence, Evidence(f"to confirm: {decides}", TO_CHECK))
    fix = choose_fix(case.profiles.fixes, found.cause, holds, slots, case.facts.first("owner"))
    if proposed := find_proposal(case, found):
        fix = f'The message proposes: "{proposed}". {fix}'
    return Finding(cause=found.cause, title=title, evidence=evidence, fix=fix, confidence=found.confidence)


_DO = (
    "use|using|set|setting|pass|passing|add|adding|install|reinstall|upgrade|upgrading|downgrade|downgrading|increase|increasing|"
    "decrease|decreasing|reduce|reducing|lower|lowering|rebuild|run|running|specify|specifying|enable|disable|switch"
)
_PROPOSES = re.compile(
    rf"(?:^|\()(?:{_DO})\b(?!:| by)|\b(?:please|try(?: to)?|consider|you (?:can|may|must|should|could|need to|might)|(?:can|must|should) be|it by|by|"
    rf"instead by|solution (?:is|will be) to)(?: (?:try|either|also|explicitly|again|instead|use))*:? (?:{_DO})\b",
    re.IGNORECASE,
)
_SPECIFIC = re.compile(
    r"--?[a-z][\w-]+|\b[A-Z][A-Z0-9]+_[A-Z0-9_]+\b|`[^`]+`|'[^']{2,60}'|\b[a-z]+_[a-z_]+\b|[<>=]=?\s?\d|\bCUDA\b.{0,40}\d|"
    r"\b(?:pip3?|conda|apt(?:-get)?|uv) install\b|\b(?:tensor|pipeline)[- ]parallel"
)
_USELESS = re.compile(
    r"debugging|\bDEBUG\b|NCCL_DEBUG|CUDA_LAUNCH_BLOCKING|TORCH_USE_CUDA_DSA|TF_CPP_MIN_LOG_LEVEL|report|unsafe|workaround|follow the guide|"
    r"https?://www\.nvidia\.com/Download|list of allocated tensors|more info|documentation|deprecat|tf\.compat|refer to|check the instructions|"
    r"recommended|issue\b|^\W*File |warnings?\.|logging|same CUDA versions|nvidia-docker",
    re.IGNORECASE,
)
_PREFIX = re.compile(
    r"^(?:\[?rank ?\d+\]?: )?(?:[IWEF]\d{0,4} )?(?:[\d:.-]+ )*(?:\S+\.(?:cc|cpp|cu|h|py):\d+\]?:? )?(?:\w*(?:Error|Warning): )*"
)
_SENTENCES = re.compile(r"(?<=[.!;])\s+|(?<=\))\s+(?=[A-Z])")
_CODE = re.compile(
    r"^\s*(?:[\w .-]{2,30}: |[$#>] |File \"|[\w.]+\(|raise |return |import |from |def |\w[\w.\[\]]* = )"
)


def find_proposal(case: Case, found: Candidate) -> str | None:
    """Return the sentence of the candidate's message that proposes an option, variable, package or version."""
    numbers = {(e.source, e.line) for e in found.evidence[:3] if e.line}
    typed = {command.line for command in case.commands}
    for i, line in enumerate(case.lines):
        if (line.source, line.number) not in numbers or line in typed:
            continue
        for sentence in _SENTENCES.split(_join(case.lines[i : i + 3])):
            text = _PREFIX.sub("", sentence).partition(", Traceback")[0]
            if (
                len(text) <= 260
                and _PROPOSES.search(text)
                and _SPECIFIC.search(text)
                and not _USELESS.search(text)
                and ("fragmentation" not in text or is_fragmented(line.text))
            ):
                return text.strip(' .;"').replace('"', "'")
    return None


def _join(lines: Iterable[Line]) -> str:
    """Return a message with the lines that continue it. Code of a traceback does not."""
    first, *following = lines
    parts = [first.text.strip()]
    for line in following:
        ended = parts[-1].endswith((".", "!", ")", ":", "'"))
        if ended or _CODE.match(line.text) or not line.text.strip():
            break
        parts.append(line.text.strip())
    return " ".join(parts)


# --- installs before the failure, mostly a notebook's `!pip install` ---------------------------

_NAMES = (
    r"(torch|torchvision|torchaudio|tensorflow(?:-gpu|-cpu)?|keras|jax|jaxlib|jax-cuda1\d-plugin|jax-cuda1\d-pjrt|"
    r"numpy|triton|xformers|nvidia-cudnn-cu1\d|nvidia-cublas-cu1\d)"
)
_VERSION = r"(\d[\w.+!]{0,40})"
_REPLACED = re.compile(rf"Found existing installation: {_NAMES} {_VERSION}", re.IGNORECASE)
_ADDED = re.compile(rf"(?<![\w-]){_NAMES}-{_VERSION}", re.IGNORECASE)
_UV = re.compile(rf"^\s{{0,4}}([-+]) {_NAMES}==?{_VERSION}", re.IGNORECASE)
_LAYERS = ("4", "5", "6", "7")  # package, libraries, packages together, system


def add_installs(findings: tuple[Finding, ...], case: Case) -> tuple[Finding, ...]:
    """Add earlier installs to a leading finding about builds or libraries.

    The runtimes of Colab and Kaggle have matching builds. If builds or libraries conflict there, a package that a
    cell installed is the first suspect, and restoring the runtime is the shortest fix.
    """
    cause = case.causes.get(findings[0].cause) if findings else None
    if cause is None or cause.layer not in _LAYERS or not (changed := _list_installs(case.lines)):
        return findings
    first, fix = findings[0], findings[0].fix or ""
    shown = (*first.evidence, *changed.values())
    if case.find_message("colab") or (case.find_message("notebook") and case.find_message("dist_packages")):
        again = case.find_message("imported_before")[:1]
        restart = "Restart the session first: it still uses the modules imported before the install. "
        fix = (
            f"{restart if again else ''}This notebook changed its runtime ({', '.join(changed)}). To restore it, "
            f"remove that cell and choose `Disconnect and delete runtime`. To keep the change: {fix}"
        )
        shown = (*shown, *again)
    return (replace(first, evidence=tuple(dict.fromkeys(shown)), fix=fix), *findings[1:])


def _list_installs(lines: Sequence[Line]) -> dict[str, Evidence]:
    """Return the first framework packages that pip or uv changed ("torch 2.4.0 to 2.5.0"), with their lines."""
    old: dict[str, str] = {}
    new: dict[str, tuple[str, Evidence]] = {}
    for line in lines:
        if match := _REPLACED.search(line.text):
            old[match[1].lower()] = match[2]
        elif "Successfully installed" in line.text:
            new |= {name.lower(): (version, line.evidence) for name, version in _ADDED.findall(line.text)}
        elif match := _UV.match(line.text):
            sign, name, version = match[1], match[2].lower(), match[3]
            if sign == "-":
                old[name] = version
            else:
                new[name] = (version, line.evidence)
    changed = {name: found for name, found in new.items() if found[0] != old.get(name)}
    return {
        f"{name} {f'{old[name]} to ' if name in old else ''}{version}": evidence
        for name, (version, evidence) in [*changed.items()][:3]
    }


# --- processes that use the GPU's memory -------------------------------------------------------

_MEMORY = ("gpu_memory_exhausted", "preallocation_leaves_no_memory", "gpu_busy_exclusive")
_HOLDERS = 3


def add_holders(findings: tuple[Finding, ...], case: Case) -> tuple[Finding, ...]:
    """Add the current processes of this machine to the findings of a full or busy GPU."""
    machine, holders = case.circumstances.machine, case.circumstances.holders
    if not holders or case.names_other_driver() or not any(f.cause in _MEMORY for f in findings):
        return findings
    processes = holders()[:_HOLDERS]
    return tuple(_add_processes(f, processes, machine) if f.cause in _MEMORY else f for f in findings)


def _add_processes(
    finding: Finding, processes: Sequence[GpuMemoryHolder], machine: Machine | None
) -> Finding:
    """Add the processes to a finding. A fix that names the process already stays."""
    if not processes or f"process {processes[0].pid}" in (finding.fix or ""):
        return finding
    evidence = list(finding.evidence)
    for holder in processes:
        source = "/dev/nvidia*" if holder.gpu is None else "NVML, measured now"
        evidence.append(Evidence(f"{holder} {holder.use} on this machine", source))
    first, busy = processes[0], finding.cause == "gpu_busy_exclusive"
    total = next((g.memory_mib for g in (machine.gpus if machine else ()) if g.index == first.gpu), None)
    # Ending a desktop's 300 MiB does not help a job.
    helps = first.memory_mib is None or first.memory_mib * 10 >= (total or 10240)
    fix = finding.fix
    if busy or helps:
        switch = f", or start it with {first.switch}" if first.switch and not busy else ""
        end = f"End {first}, which {first.use} on this machine{switch}."
        fix = f"{end} {fix or ''}".strip()
    return replace(finding, evidence=tuple(evidence), fix=fix)
