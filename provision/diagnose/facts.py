"""Read the facts of a text, each with its line: versions, GPUs, the system, and libraries that exist or are missing.

Every reader is a regular expression with bounded repetition, tried only on lines that hold its key word. The first
value of a fact counts. A text describes its machine, then the error, and seldom a second machine.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field

from ..model import FRAMEWORK_ALIASES, Evidence, GpuModel, format_cuda, format_cudnn, normalize_name
from ..model.values import Value
from ..system.versions import meets, numbers
from .lines import Line, ShellCommand, read_commands

CONDITIONS = frozenset(
    ("torch", "tensorflow", "jax", "jaxlib", "ctranslate2", "numpy", "onnxruntime", "cuda", "cuda_build", "cudnn",
     "driver", "driver_cuda", "capability", "board_capability", "python", "os", "visible", "library_path",
     "oom_kills", "cpu_build", "program", "framework", "system", "distribution", "container", "gpu_flag", "manager",
     "owner", "cluster", "launch", "case", "rule", "device", "made", "no_gpu", "gpu")
)  # fmt: skip
"""Facts that a rule may require or exclude, and slots of a candidate: case, rule, device."""
_MOST = 40  # values of one fact


class Fact(Value, kw_only=False):
    """A value in the text, and its line."""

    value: str
    evidence: Evidence


@dataclasses.dataclass
class Facts:
    """Facts by name, in the order of the text.

    - packages by their names, `cpu_build` ("yes"), cuda_build, cudnn_built: what the framework's build has
    - driver, driver_cuda (which it supports), gpu and board_capability (a board and its), capability (as a number)
    - kernels (a whole list), kernel (one of a list of lines), visible (CUDA_VISIBLE_DEVICES), no_gpu ("yes")
    - cuda (installed), cuda_path (in a path), conda_toolkit, cudnn, cudnn_loaded, cudnn_listed (a copy in a listing)
    - cudnn_required, cudnn_older, cudnn_minimum and cudnn_installed (JAX's): what a message on two versions says
    - missing, loaded, present: libraries; wheel ("cublas-cu12"), no_wheels: NVIDIA packages of a list
    - searched (a family of libraries that a command did not find), absent (nowhere on the disk), library_path
    - free_bytes, total_bytes, bfc_limit, bfc_in_use: memory of the GPU; oom_kills: of the kernel, while the program ran
    - program, framework, launch, launch_fixed, gpu_flag, made ("gpuenv"), and the names of the table `signs`
    - python, os, glibc
    """

    seen: dict[str, list[Fact]] = field(default_factory=dict)
    packages: set[str] = field(default_factory=set)

    def add(self, name: str, value: str, where: Evidence) -> None:
        known = self.seen.setdefault(name, [])
        if len(known) < _MOST and all(f.value != value for f in known):
            known.append(Fact(value, where))

    def add_all(self, found: Iterable[tuple[str, ...]], where: Evidence) -> None:
        """Add what readers found."""
        for name, value, *local in found:
            if local:
                self.add_package(name, value, local[0], where)
            else:
                self.add(name, value, where)

    def add_package(self, name: str, version: str, local: str | None, where: Evidence) -> None:
        """Add a package, and what its local version label says: +cu121, +cuda11.cudnn86, +cpu."""
        name, local = normalize_name(name), (local or "").lstrip("+").lower()
        if name == "tensorflow-cpu" or local.startswith("cpu"):
            self.add("cpu_build", "yes", where)
        name = name if name == "jaxlib" else FRAMEWORK_ALIASES.get(name, name)
        self.packages.add(name)
        self.add(name, version, where)
        if match := re.match(r"cu(?:da)?(\d{2,3})", local):
            self.add("cuda_build", _dot(match[1]), where)
        if match := re.search(r"cudnn(\d{2,3})", local):
            self.add("cudnn_built", f"{match[1][0]}.{match[1][1:]}", where)

    def first(self, name: str) -> str | None:
        known = self.seen.get(name)
        return known[0].value if known else None

    def all(self, name: str) -> tuple[str, ...]:
        return tuple(f.value for f in self.seen.get(name, ()))

    def find_lines(self, *names: str) -> tuple[Evidence, ...]:
        """Return the lines of the first facts of these names."""
        return tuple(dict.fromkeys(self.seen[n][0].evidence for n in names if self.seen.get(n)))

    def find_matching(self, name: str, pattern: re.Pattern[str]) -> tuple[Evidence, ...]:
        """Return the first lines of a fact's values that match the pattern."""
        lines = (f.evidence for f in self.seen.get(name, ()) if pattern.match(f.value))
        return tuple(dict.fromkeys(lines))[:3]

    def holds(self, condition: str) -> bool:
        """Return whether a condition is true: "os=windows", "torch==1.8.0", or "torch" (known at all)."""
        name = get_name(condition)
        values, rest = self.all(name), condition[len(name) :]
        if not rest:
            return bool(values)
        if rest[0] == "=" and rest[1] != "=":
            return rest[1:] in values
        return any(meets(v, rest) for v in values)


def get_name(condition: str) -> str:
    """Return the fact that a condition is about: "torch" of "torch==1.8.0"."""
    return re.split(r"[=<>!~]", condition, maxsplit=1)[0]


def _dot(digits: str) -> str:
    """Return digits with dots: "121" as CUDA 12.1, "92" as 9.2, "11" as 11."""
    if len(digits) == 2 and digits[0] == "1" and digits != "10":
        return digits
    return f"{digits[:-1]}.{digits[-1]}"


def spell_cudnn(text: str) -> str:
    """Return a version of cuDNN with dots: 8907 is 8.9.7, 90100 is 9.1.0, (8, 3, 2) is 8.3.2."""
    parts = numbers(text)
    return format_cudnn(parts if len(parts) > 1 else parts[0]) or text


def read_facts(lines: Sequence[Line], gpus: Sequence[GpuModel]) -> Facts:
    """Return all facts of a text. `gpus` are the known boards with their capabilities."""
    facts = Facts()
    boards = {
        tuple(split_board_name(b.lower())): (b, g.capability)
        for g in reversed(gpus)
        for b in reversed(g.boards)
    }
    for i, line in enumerate(lines):
        low, where = line.text.lower(), line.evidence
        facts.add_all(_read_rows(_LINES, line.text), where)
        if i + 1 < len(lines):
            both = f"{line.text}\n{lines[i + 1].text.strip()}"
            facts.add_all(_read_rows(_COMMANDS, both), where)
            facts.add_all(_read_rows(_HEADINGS, both), lines[i + 1].evidence)
        for name, capability in _find_boards(low, boards):
            facts.add("gpu", name, where)
            facts.add("board_capability", capability, where)
    _read_cudnn_header(facts, lines)
    for command in read_commands(lines):
        if _LISTS_PACKAGES.search(command.typed):
            _read_packages(facts, command)
        elif _LISTS_FILES.search(command.typed):
            _read_files(facts, command)
    return facts


def _read_rows(rows: Sequence[_CompiledRow], text: str) -> _Found:
    """Yield what the patterns of some rows find in a text. Each is tried if the text has one of its words."""
    low = text.lower()
    for words, pattern, reader in rows:
        if any(word in low for word in words):
            for match in pattern.finditer(text):
                if isinstance(reader, str):
                    name, _, form = reader.partition("=")
                    yield name, match.expand(form) if form else match[match.lastindex or 0]
                else:
                    yield from reader(match)


# --- names of GPU boards -----------------------------------------------------------------------

_WORDS = re.compile(r"[a-z]+\d+[a-z]*|\d+[a-z]*|[a-z]+")
_NOISE = frozenset(("nvidia", "geforce", "tesla", "quadro", "gpu", "graphics", "laptop", "generation"))
_SERIES = ("rtx", "gtx", "gt", "titan", "tesla", "quadro", "geforce", "nvidia", "gpu", "jetson", "orin", "xavier",
           "spark", "kaggle")  # fmt: skip
_LONGEST = 5


def split_board_name(text: str) -> list[str]:
    """Return the words of a name. "RTX 2080Ti" and "rtx 2080 ti" are equal."""
    words: list[str] = []
    for word in _WORDS.findall(text):
        glued = re.fullmatch(r"(rtx|gtx|gt)(\d\w*)", word)
        for part in glued.groups() if glued else (word,):
            suffixed = re.fullmatch(r"(\d{3,4})(ti|super|d)", part)
            words += suffixed.groups() if suffixed else (part,)
    return [w for w in words if w not in _NOISE]


def _find_boards(low: str, known: dict[tuple[str, ...], tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield (board, capability) of every board in a lower-case line about hardware, by the longest sequence of words.

    A short single word such as "k80" needs "tesla" beside it.
    """
    words = split_board_name(low[:600]) if any(word in low for word in _SERIES) else []
    while words:
        sizes = (n for n in range(_LONGEST, 0, -1) if tuple(words[:n]) in known)
        size = next((n for n in sizes if n > 1 or len(words[0]) > 2 or "tesla" in low), 0)
        if size:
            yield known[tuple(words[:size])]
        del words[: size or 1]


# --- lines "key: value" of issue templates and collect_env -------------------------------------

_VERSION = r"v?(\d{1,4}\.\d{1,4}(?:\.\d{1,4}){0,2}(?:\.?(?:dev|rc|post|a|b)\d{1,10})?)(\+[\w.]{1,30})?"
_WINDOWS, _MACOS = r"windows|\bwin[ -]?(?:7|8|1[01])\b", r"mac ?os|darwin|os x"
_KEYED = r"^[\s>*#|-]{0,8}([A-Za-z][\w /.()-]{1,40}?)[*\x60]{0,2}\s{0,12}[:=]\s{0,4}[*\x60]{0,2}(\S.{0,400})$"


def _read_entry(match: re.Match[str]) -> _Found:
    return _read_rows(_KEYS.get(match[1].strip().lower(), ()), match[2].strip())


def _read_cuda(match: re.Match[str]) -> _Found:
    value = match[0]
    versions = re.findall(r"(?<![\d.])(\d{1,2}\.\d)(?:\.\d{1,3})?(?![\d])", value)
    versions = versions or re.findall(r"\b(1[0-9])\b", value)
    of_driver = "driver" in value and "toolkit" not in value and "nvcc" not in value
    for version in versions[: 1 if of_driver else 3]:
        yield "driver_cuda" if of_driver else "cuda", version


def _read_torch(whole: re.Match[str]) -> _Found:
    low = whole[0].lower()
    if match := re.match(rf"[=<> v]{{0,4}}{_VERSION}", low):
        if not low.startswith("<"):
            yield "torch", match[1], match[2] or ""
        low = low[match.end() :]
    if match := re.search(
        r"(?:built (?:for|with)|cuda|cu)[ _]?(\d{1,2}\.\d|\d{2,3})\b|cuda(\d{1,2}\.\d)_", low
    ):
        digits = match[1] or match[2]
        yield "cuda_build", digits if "." in digits else _dot(digits)
    if re.search(r"\bcpu\b", low):
        yield "cpu_build", "yes"


def _read_release(name: str, whole: re.Match[str]) -> _Found:
    value = whole[0]
    for match in list(re.finditer(_VERSION, value))[-1:]:
        yield name, match[1], match[2] or ""
    if cuda := re.search(r"\bcuda ?(1[0-9](?:\.\d)?)", value.lower()):
        yield "cuda_build", cuda[1]


def _read_cudnn(match: re.Match[str]) -> _Found:
    yield "cudnn_loaded" if "loaded" in match[2] else "cudnn", match[1]


# --- readers of any line ---------------------------------------------------------------------


def _read_named(match: re.Match[str]) -> _Found:
    yield match[1], match[2], match[3] or ""


def _read_cuda_number(match: re.Match[str]) -> _Found:
    """Read a CUDA of one number: 11040 is 11.4."""
    yield "driver_cuda", format_cuda(int(match[1])) or ""


def _read_cuda_digits(match: re.Match[str]) -> _Found:
    yield "cuda_build", _dot(match[1])


def _read_pair(match: re.Match[str]) -> _Found:
    """Read the loaded and the compiled cuDNN of PyTorch, TensorFlow, XLA or JAX."""
    for name in ("loaded", "built"):
        yield f"cudnn_{name}", spell_cudnn(match[name])


def _read_older_pair(match: re.Match[str]) -> _Found:
    """Read the compiled and the loaded cuDNN of Paddle or TensorRT. A newer one than the compiled is no failure."""
    built, loaded = (numbers(match[name]) for name in ("built", "loaded"))
    both = min(len(built), len(loaded))
    if loaded[:both] < built[:both]:
        yield from _read_pair(match)
        yield "cudnn_older", match["loaded"]


def _read_kernels(match: re.Match[str]) -> _Found:
    """Read a build's arch list: two or more sm_XY on one line."""
    names = re.findall(r"sm_(\d{2,3})", match[0])
    if len(names) > 1:
        yield "kernels", " ".join(f"{n[:-1]}.{n[-1]}" for n in names)


def _read_plain_kernels(match: re.Match[str]) -> _Found:
    """Read the architectures of llama.cpp (700, 750) or PaddlePaddle (70 75), and that of the GPU."""
    found = [int(n) for n in (match["gpu"], *re.findall(r"\d{2,4}", match["kernels"]))]
    scale = 100 if any(n >= 300 for n in found) else 10
    gpu, *kernels = (f"{n // scale}.{n % scale // (scale // 10)}" for n in found)
    yield "capability", gpu
    yield "kernels", " ".join(kernels)


def _read_capability(match: re.Match[str]) -> _Found:
    text = match[1]
    yield "capability", text if "." in text else f"{text[:-1]}.{text[-1]}"


def _read_missing(match: re.Match[str]) -> _Found:
    for name in re.findall(_SONAME, match[0])[:6]:
        yield "missing", name


_PACKAGES = (
    "torch|pytorch|torchvision|torchaudio|tensorflow[-_]gpu|tensorflow[-_]cpu|tensorflow|tf|jax|jaxlib|"
    "jax[-_]cuda1[1-9][-_](?:plugin|pjrt)|keras|numpy|onnxruntime[-_]gpu|onnxruntime|ctranslate2|faster[-_]whisper|"
    "flash[-_]attn|xformers|triton|cupy[-_a-z0-9]{0,12}|mxnet[-_a-z0-9]{0,8}|bitsandbytes|"
    "nvidia[-_]cudnn[-_]cu1[1-9]|cudatoolkit"
)
_NAMED = (
    rf"(?i)(?<![\w/.-])({_PACKAGES})(?:[ _]?(?:version|ver)\b|\.__version__)?[ \t]{{0,30}}"
    rf"(?:[=:~<>]{{1,3}}|[ \t]|-|is )[ \t'\"(`]{{0,4}}{_VERSION}"
)
_SONAME = r"((?:lib[\w+-]{2,60}\.so(?:\.\d{1,5}){0,4})|(?:[\w-]{3,60}\.dll))"
# "No GPU" in any wording: nothing of it is found, it is not there, or something could not find or use it.
_GPU = r"(?:gpus?|cuda(?: devices?)?|accelerators?|device type|nvidia devices?|graphics cards?)"
_NO_GPU = (
    rf"(?i)\b(?:no|without(?: a| any)?) (?:(?:visible|usable|available|compatible|suitable|supported|active|nvidia|cuda|cuda[ -]?capable|capable|valid)[ -]){{0,3}}{_GPU}\b"
    rf"|\b{_GPU}\b(?: (?:device|support|backend|driver|platform|acceleration)s?)? (?:is|are|was|were|could|can) ?(?:not|n't|n\u2019t)(?: be)? (?:\w+ )?(?:available|found|detected|visible|usable|recogni[sz]ed|accessible|present|enabled|used)\b"
    rf"|\b{_GPU}\b.{{0,12}}\b(?:unavailable|not (?:available|found|detected|visible|accessible|present))\b"
    rf"|\b(?:fail(?:ed|s)?|unable|cannot|can't|could ?n[o']t|can not|not able|did not|does not|doesn't|didn't)(?: to)? (?:\w+ ){{0,2}}?(?:find|infer|detect|see|use|access|utili[sz]e|locate|get)\b(?: \w+){{0,3}} {_GPU}\b"
)
_Found = Iterator[tuple[str, ...]]
"""What a reader finds: facts with their values, and packages with their versions and local labels."""
_Reader = str | Callable[[re.Match[str]], _Found]
_CompiledRow = tuple[list[str], re.Pattern[str], _Reader]


def _compile(*rows: tuple[str, str, _Reader]) -> tuple[_CompiledRow, ...]:
    r"""Return rows ready to use: words of which the text has one, a pattern, and what reads its matches.

    That is a function, or the fact that the match's last group is, or whose value is made of its groups ("python=3.\1").
    """
    return tuple((words.split("|"), re.compile(pattern), reader) for words, pattern, reader in rows)


_LINES = _compile(
    (":|=", _KEYED, _read_entry),
    ("driver version|kmd version", r"(?i)(?:driver|kmd) version:? {0,4}(\d{3}\.\d{1,3}(?:\.\d{1,3})?)", "driver"),
    ("kernel module", r"(?i)kernel module(?: for \S{1,12})? {1,4}(\d{3}\.\d{1,3}(?:\.\d{1,3})?)", "driver"),
    ("driver", r"(?i)driver:? (\d{3}\.\d{2,3}(?:\.\d{1,3})?)", "driver"),
    ("version:", r"CUDA(?: UMD)? Version: {0,4}(\d{1,2}\.\d)", "driver_cuda"),
    ("found version", r"(?i)found version (\d{4,5})\b", _read_cuda_number),
    ("sm_|compute_", r"sm_\d{2,3}(?:[ ,'\"\]\[]{1,4}(?:sm|compute)_\d{2,3}){1,40}", _read_kernels),
    ("compiled for", r"CUDA arch (?P<gpu>\d{2,4})\b.{0,40}compiled for: {0,2}(?P<kernels>\d[\d, ]{1,120})", _read_plain_kernels),
    ("compiled for", r"was compiled for (?P<kernels>\d[\d, ]{1,120}), but your current GPU is (?P<gpu>\d{2,4})\b", _read_plain_kernels),
    ("capability", r"(?i)(?:capability:?|capability of) (?:sm_)?(\d{1,2}\.\d|\d{2,3})\b", _read_capability),
    ("(cc)", r"compute capability \(CC\) (\d{1,2}\.\d)\b", _read_capability),
    ("hardware cc", r"- (\d{1,2}\.\d) which supports hardware CC\b", "kernel"),
    ("(sm_", r"\(sm_(\d{2,3})\)", _read_capability),
    ("bytes free", r"(\d{1,14}) bytes free", "free_bytes"),
    ("limit:", r"^Limit: {1,40}(\d{1,14})$", "bfc_limit"),
    ("inuse:", r"^InUse: {1,40}(\d{1,14})$", "bfc_in_use"),
    ("bytes total", r"(\d{1,14}) bytes total", "total_bytes"),
    ("used to build pytorch", r"(?i)CUDA used to build PyTorch: (\d{1,2}\.\d)", "cuda_build"),
    ("used to build pytorch", r"(?i)CUDA used to build PyTorch: (?:None|could not collect)", "cpu_build=yes"),
    ("pytorch (", r"(?i)PyTorch \((\d{1,2}\.\d)\)", "cuda_build"),
    ("_cuda", r"(?i)py3\.?\d{1,2}_cuda(\d{1,2}\.\d)", "cuda_build"),
    ("_cpu", r"py3\.?\d{1,2}_cpu", "cpu_build=yes"),
    ("detected cuda version", r"(?i)detected CUDA version \((\d{1,2}\.\d)\)", "cuda"),
    ("release", r"(?i)tools, release (\d{1,2}\.\d)", "cuda"),
    ("/cuda-|\\cuda\\v", r"(?i)(?:/cuda-|\\cuda\\v)(\d{1,2}\.\d)", "cuda_path"),
    ("compiled with", r"(?i)library: (?P<loaded>\d{1,2}\.\d{1,2}\.\d{1,3}|\d{4,5}).{0,60}compiled with:? (?P<built>\d{1,2}\.\d{1,2}\.\d{1,3}|\d{4,5})", _read_pair),
    ("cudnn", r"(?i)(?:compiled|built|linked) (?:with|against|for) cudnn (?:version )?v?(?P<built>\d{1,2}(?:\.\d{1,3}){1,2})\b.{0,60}?cudnn(?: version)?(?: in your machine)?(?: is|:)? v?(?P<loaded>\d{1,2}(?:\.\d{1,3}){1,2})", _read_older_pair),
    ("found cudnn version", r"(?i)Found cuDNN version (?P<loaded>\d{4,6}).{0,60}built against version (?P<built>\d{4,6})", _read_pair),
    ("minimum supported", r"(?i)minimum supported:? (\d{4,6})", "cudnn_minimum"),
    ("installed version", r"(?i)installed version:? (\d{4,6})", "cudnn_installed"),
    ("cudnn", r"(?i)cudnn {0,2}>= {0,2}(\d{1,2}(?:\.\d{1,3}){0,3}).{0,40}(?:required|needed)|requires cudnn {0,2}>= {0,2}(\d{1,2}(?:\.\d{1,3}){0,3})", "cudnn_required"),
    ("_cuda", r"_cuda(\d{2,3})_cudnn", _read_cuda_digits),
    ("compiled against|compiled  against", r"(?i)compiled {1,2}against {1,2}(?P<built>\([\d, ]{3,16}\)|\d{4,5}) but (?:linked against|found runtime version) (?P<loaded>\([\d, ]{3,16}\)|\d{4,5})", _read_pair),
    ("torch|tensorflow|jax|keras|numpy|onnx|ctrans|flash|xform|triton|cupy|mxnet|whisper|bits|cudatoolkit|tf|nvidia", _NAMED, _read_named),
    ("cudnn", r"(?i)cudnn(?: version| ver)?[ :=v-]{1,4}(\d{1,2}\.\d{1,2}(?:\.\d{1,3}){0,2})", "cudnn"),
    ("cudnn-", r"(?i)cudnn-(?:windows|linux)-x86_64-(\d{1,2}\.\d{1,2}(?:\.\d{1,3}){0,2})", "cudnn"),
    ("/python|python3|\\python|cpython-", r"(?i)(?:/python|python|cpython-)([23](?:\.\d{1,2}))(?=[/ ]|dist|$)", "python"),
    ("python 3|python-3", r"(?i)\bc?python[ -](3\.\d{1,2})(?![\d])", "python"),
    ("\\python3", r"(?i)\\python3(\d{1,2})\\", r"python=3.\1"),
    ("cpython-3", r"cpython-3(\d{1,2})m?-", r"python=3.\1"),
    (":\\", r"(?<!\w)[A-Za-z]:\\\w", "os=windows"),
    (".dll", r"(?i)\.dll\b", "os=windows"),
    ("wsl|microsoft-standard|/dev/dxg", r"(?i)\bWSL\w{0,8}|microsoft-standard|/dev/dxg|/usr/lib/wsl", "os=wsl"),
    ("cannot open shared|cannot be opened", _SONAME + r": {0,2}cannot open shared", _read_missing),
    ("could not load|couldn't open|could not locate|could not find|unable to load any|unable to open",
     rf"(?i)(?:could not (?:load|locate|find)|couldn't open|unable to (?:load any of|open)).{{0,60}}?{_SONAME}[^;:]{{0,120}}", _read_missing),
    ("not found|missing|error loading", rf"(?i){_SONAME}.? (?:is )?(?:not found|missing)|error loading .{{0,200}}?{_SONAME}", _read_missing),
    ("successfully opened|found in", rf"(?i)successfully opened .{{0,20}}library {_SONAME}", "loaded"),
    (".so|.dll", rf"(?:^|=> |\s)(/[\w./+-]{{1,200}}/{_SONAME})(?=$|\s|\))(?!.{{0,80}}(?:cannot|undefined|not found|symbol))", "present"),
    ("ld_library_path", r"LD_LIBRARY_PATH ?[=:] {0,2}['\"]?([/$][^\s'\";]{1,400})", "library_path"),
    ("cuda_visible_devices", r"CUDA_VISIBLE_DEVICES['\"]?\]? {0,3}(?:=(?= [a-z./])|[=:] {0,3}['\"]?)([\w,\-\[\]/]{1,120}|)", "visible"),
    ("glibc", r"(?i)glibc[ -](2\.\d{1,2})", "glibc"),
    ("+cpu", r"(?<![\w.])\d{1,4}\.\d{1,4}(?:\.\d{1,4})?\S{0,12}\+cpu\b", "cpu_build=yes"),
    ("+cu1|+cu9", r"(?<![\w.])\d{1,4}\.\d{1,4}(?:\.\d{1,4})?\S{0,12}\+cu(\d{2,3})\b", _read_cuda_digits),
    ("not found", rf"(?i){_SONAME}[\"']?\s{{0,4}}(?:=>|->|:)\s{{0,4}}(?:not found|missing)", _read_missing),
    ("gpu|cuda|accelerator|device type|nvidia device", _NO_GPU, "no_gpu=yes"),
)  # fmt: skip
_COMMANDS = _compile(
    ("torch.__version__", rf"(torch)\.__version__.*\n['\"]?{_VERSION}", _read_named),
    ("torch.version.cuda", r"torch\.version\.cuda.*\n['\"]?(\d+\.\d+)['\"]?$", "cuda_build"),
    ("torch.version.cuda", r"torch\.version\.cuda.*\nNone$", "cpu_build=yes"),
    ("get_device_capability", r"get_device_capability.*\n\((\d{1,2}), (\d)\)$", r"capability=\1.\2"),
    ("echo $ld_library_path", r"(?i)echo \$LD_LIBRARY_PATH.*\n(/.*|:.*)", "library_path"),
)  # fmt: skip
"""What an interpreter or a shell prints on the line after its command."""
_HEADINGS = _compile(
    ("##", r"^#{2,5} {1,4}([A-Za-z][\w /.()-]{1,40}?)\s{0,4}\n[*\x60]{0,2}([^\s#].{0,400})$", _read_entry),
    ("name:", rf"^\s*Name: {{0,4}}(\S{{1,60}})\nVersion: {{0,4}}{_VERSION}", _read_named),
)  # fmt: skip
"""What stands on the line after its heading: a value of an issue's form, and the version in `pip show`."""
_KEYS = {
    key: _compile(*(("", pattern, reader) for pattern, reader in rows))
    for keys, *rows in (
        ("driver|nvidia driver version|nvidia driver|driver version|gpu driver", (r"(?<![\d.])(\d{3}\.\d{1,3}(?:\.\d{1,3})?)(?![\d.]\d)", "driver")),
        ("cuda|cuda version|cuda ver|cuda/cudnn version|cuda toolkit|toolkit|gpu toolkit version|cuda toolkit version|cuda runtime version|cuda  version", (".+", _read_cuda)),
        ("torch|pytorch|torch version", (".+", _read_torch)),
        ("cudnn|cudnn version|cudnn ver", (r"(?<![\d.])(\d{1,2}(?:\.\d{1,2}){0,3})(?![\d])(\s{0,2}\w{0,12})", _read_cudnn)),
        ("python|python version", (r"(?i)^(?:python )?v?([23]\.\d{1,2})", "python")),
        ("os|operating system|platform|os platform and distribution",
         (r"(?i)wsl", "os=wsl"),
         (rf"(?i)^(?!.*wsl).*(?:{_WINDOWS})", "os=windows"),
         (rf"(?i)^(?!.*(?:wsl|{_WINDOWS})).*(?:{_MACOS})", "os=macos"),
         (rf"(?i)^(?!.*(?:wsl|{_WINDOWS}|{_MACOS}))", "os=linux")),
        ("ld_library_path", (".+", "library_path")),
        ("cuda_visible_devices", (".+", "visible")),
    )
    for key in keys.split("|")
} | {
    key: _compile(("", ".+", functools.partial(_read_release, name)))
    for name, *more in (("tensorflow", "tensorflow version", "tf", "tensorflow-gpu"), ("jax", "jax version"), ("jaxlib",),
                        ("jax-cuda12-plugin", "jax_cuda12_plugin"), ("ctranslate2",))
    for key in (name, *more)
}  # fmt: skip
"""What reads the value of a key, as issue forms and collect_env name it."""


# --- what the output of commands lists as existing ---------------------------------------------

_I = re.IGNORECASE
_LISTS_FILES = re.compile(
    r"\b(?:find|ls|ldconfig|locate|where|whereis|dir|dpkg|rpm|ldd|Get-ChildItem|gci)\b|\bshow -f\b|\bshow .{0,20}--files\b", _I
)  # fmt: skip
_LISTS_PACKAGES = re.compile(r"\b(?:pip3?|conda|mamba|micromamba|uv pip)\b.{0,40}\b(?:list|freeze)\b")
_WHOLE_DISK = re.compile(r"\bfind /(?:\s|usr\b|opt\b)|\b(?:p?locate)\b|\bwhere\b.{0,10} /r\b", _I)
_FILE = re.compile(
    r"(?<![\w./\\-])((?:[\w.~$@+-]{0,80}[/\\]){0,30}(?:lib[\w+-]{2,60}\.so(?:\.\d{1,5}){0,4}|[\w-]{3,60}\.dll))(?![\w.-]*\.(?:py|txt|h)\b)", _I
)  # fmt: skip
_GONE = re.compile(r"cannot|not found|no such file|undefined|could not", _I)
_NOTHING = re.compile(
    r"0$|.{0,60}(?:no such file or directory|could not find files|no matches found|not find any)", _I
)
_WHEEL = re.compile(r"^nvidia[-_]([a-z]{2,20}?(?:[-_][a-z]{2,12})?)[-_]cu(1\d)(?:==|\s{1,40})(\d{1,3}(?:\.\d{1,5}){1,3})")  # fmt: skip
_CUDNN_FILE = re.compile(r"(?:^|[/\\])libcudnn\.so\.(\d{1,2}\.\d{1,2}\.\d{1,3})$")
_CUDNN_DEB = re.compile(r"\blibcudnn\d{1,2}(?:-[\w-]{1,20})?[ \t:]\S{0,10}[ \t]{0,40}(\d{1,2}\.\d{1,2}\.\d{1,3})[.\d]{0,6}[-+]")  # fmt: skip
_CUDNN_PACKAGE = re.compile(r"^(?:nvidia[-_])?cudnn(?:[-_]cu1\d)?(?:==|\s{1,40})(\d{1,2}\.\d{1,2}\.\d{1,3})")
_TOOLKIT = re.compile(r"^(?:cudatoolkit|cuda-toolkit|cuda-cudart)\s{1,40}(\d{1,2}\.\d{1,2})")
_HEADER = re.compile(r"#define CUDNN_(MAJOR|MINOR|PATCHLEVEL)\s{1,20}(\d{1,3})\b")
_FAMILIES = {
    "cudnn": re.compile(r"cudnn", _I),
    "cuda": re.compile(r"cudart|cublas|cufft|cusparse|cusolver|curand|nvrtc|libcu\*", _I),
    "zlib": re.compile(r"zlibwapi", _I),
}


def _read_files(facts: Facts, command: ShellCommand) -> None:
    """Add the libraries of a listing, or the families that a search did not find."""
    for line in command.output:
        if _GONE.search(line.text):
            continue
        for match in list(_FILE.finditer(line.text))[:12]:
            facts.add("present", match[1], line.evidence)
            _add_cudnn(facts, _CUDNN_FILE.search(match[1]), line)
        _add_cudnn(facts, _CUDNN_DEB.search(line.text), line)
    if not command.ended or any(not _NOTHING.match(line.text.strip()) for line in command.output):
        return
    if ";" in command.typed and command.output:
        return
    for family, names in _FAMILIES.items():
        if names.search(command.typed):
            facts.add("searched", family, command.line.evidence)
            if _WHOLE_DISK.search(command.typed):
                facts.add("absent", family, command.line.evidence)


def _read_packages(facts: Facts, command: ShellCommand) -> None:
    """Add the NVIDIA packages of a list, or that a list of packages has none."""
    for line in command.output:
        text, where = line.text.strip(), line.evidence
        if match := _WHEEL.match(text):
            name, major, version = match.groups()
            facts.add("wheel", f"{name.replace('_', '-')}-cu{major}", where)
            facts.add(f"nvidia-{name}-cu{major}", version, where)
        if match := _TOOLKIT.match(text):
            facts.add("cuda", match[1], where)
            facts.add("conda_toolkit", match[1], where)
        _add_cudnn(facts, _CUDNN_PACKAGE.match(text), line)
    wanted = "nvidia" in command.typed.lower() or "|" not in command.typed
    if wanted and command.output and not facts.all("wheel") and not facts.all("conda_toolkit"):
        facts.add("no_wheels", "yes", command.line.evidence)


def _add_cudnn(facts: Facts, match: re.Match[str] | None, line: Line) -> None:
    if match:
        facts.add("cudnn", match[1], line.evidence)
        facts.add("cudnn_listed", match[1], line.evidence)


def _read_cudnn_header(facts: Facts, lines: Sequence[Line]) -> None:
    """Read the version in cudnn_version.h, which three lines define."""
    parts: dict[str, str] = {}
    for line in lines:
        if "CUDNN_" in line.text and (match := _HEADER.search(line.text)):
            parts[match[1]] = match[2]
            if len(parts) == 3:
                version = ".".join(parts.pop(n) for n in ("MAJOR", "MINOR", "PATCHLEVEL"))
                facts.add("cudnn", version, line.evidence)
                facts.add("cudnn_listed", version, line.evidence)
