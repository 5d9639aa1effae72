"""Read facts about the machine and the environment from a text.

Every reader is a regular expression with bounded repetition, tried only on lines that hold its key word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ..model import Evidence, GpuModel
from .board_names import Boards
from .facts import Facts
from .key_value_lines import KEYED, keyed
from .libraries_listed_in_text import add_inventory
from .lines import Line
from .pattern_search import evidence
from .version_texts import VERSION, dotted, package, spelled

_PACKAGES = (
    "torch|pytorch|torchvision|torchaudio|tensorflow[-_]gpu|tensorflow[-_]cpu|tensorflow|tf|jax|jaxlib|"
    "jax[-_]cuda1[1-9][-_](?:plugin|pjrt)|keras|numpy|onnxruntime[-_]gpu|onnxruntime|ctranslate2|faster[-_]whisper|"
    "flash[-_]attn|xformers|triton|cupy[-_a-z0-9]{0,12}|mxnet[-_a-z0-9]{0,8}|bitsandbytes|"
    "nvidia[-_]cudnn[-_]cu1[1-9]|cudatoolkit"
)
_NAMED = re.compile(
    rf"(?<![\w/.-])({_PACKAGES})(?:[ _]?(?:version|ver)\b|\.__version__)?[ \t]{{0,30}}"
    rf"(?:[=:~<>]{{1,3}}|[ \t]|-|is )[ \t'\"(`]{{0,4}}{VERSION}",
    re.IGNORECASE,
)
_HEADING = re.compile(r"^#{2,5} {1,4}([A-Za-z][\w /.()-]{1,40}?)\s{0,4}$")
_SONAME = r"((?:lib[\w+-]{2,60}\.so(?:\.\d{1,5}){0,4})|(?:[\w-]{3,60}\.dll))"

Reader = Callable[["Facts", "re.Match[str]", Evidence], None]


def read_facts(lines: Sequence[Line], gpus: Sequence[GpuModel]) -> Facts:
    """Return all facts of a text. `gpus` are the known boards with their capabilities."""
    facts, boards = Facts(), Boards(gpus)
    for i, line in enumerate(lines):
        low, where = line.text.lower(), evidence(line)
        for words, expression, reader in READERS:
            if any(word in low for word in words):
                for match in expression.finditer(line.text):
                    reader(facts, match, where)
        following = lines[i + 1].text.strip() if i + 1 < len(lines) else ""
        _read_command_output(facts, low, following, where)
        if (heading := _HEADING.match(line.text)) and following:
            _read_headed(facts, heading.group(1), lines[i + 1])
        for name, capability in boards.named(low):
            facts.add("gpu", name, where)
            facts.add("board_capability", capability, where)
    add_inventory(facts, lines)
    return facts


def _read_command_output(facts: Facts, low: str, following: str, where: Evidence) -> None:
    """Read a command of the interpreter or the shell, with its output on the next line."""
    answer = following.strip("'\"")
    if "torch.__version__" in low and re.match(r"\d+\.\d+", answer):
        package(facts, "torch", answer.partition("+")[0], answer.partition("+")[1:][-1], where)
    elif "torch.version.cuda" in low and re.fullmatch(r"\d+\.\d+", answer):
        facts.add("cuda_build", answer, where)
    elif "torch.version.cuda" in low and answer == "None":
        facts.add("cpu_build", "yes", where)
    elif "get_device_capability" in low and (pair := re.fullmatch(r"\((\d{1,2}), (\d)\)", answer)):
        facts.add("capability", ".".join(pair.groups()), where)
    elif "echo $ld_library_path" in low and answer.startswith(("/", ":")):
        facts.add("library_path", answer, where)


def _read_headed(facts: Facts, heading: str, answer: Line) -> None:
    """Read a heading of an issue form ("### Python version") and the value below it."""
    if not answer.text.startswith("#") and (found := KEYED.match(f"{heading}: {answer.text.strip()}")):
        keyed(facts, found, evidence(answer))


# --- readers: (facts, match, line) -----------------------------------------------------------


def _make_reader(name: str) -> Reader:
    def reader(facts: Facts, match: re.Match[str], where: Evidence) -> None:
        facts.add(name, match.group(1), where)

    return reader


def _make_fixed_reader(name: str, value: str) -> Reader:
    def reader(facts: Facts, _match: re.Match[str], where: Evidence) -> None:
        facts.add(name, value, where)

    return reader


def _read_named(facts: Facts, match: re.Match[str], where: Evidence) -> None:
    package(facts, match.group(1), match.group(2), match.group(3), where)


def _make_number_reader(name: str) -> Reader:
    """Return a reader of versions as one number: 11040 is CUDA 11.4, 8907 is cuDNN 8.9.7."""

    def reader(facts: Facts, match: re.Match[str], where: Evidence) -> None:
        facts.add(name, spelled(match.group(1), cuda="cuda" in name), where)

    return reader


def _read_pair(facts: Facts, match: re.Match[str], where: Evidence) -> None:
    """Read the loaded and the compiled cuDNN of TensorFlow, XLA or JAX: 8.5.0, or 8500."""
    for name, text in zip(("cudnn_loaded", "cudnn_built"), match.groups(), strict=True):
        facts.add(name, text if "." in text else spelled(text), where)


def _read_required(facts: Facts, match: re.Match[str], where: Evidence) -> None:
    facts.add("cudnn_required", match.group(1) or match.group(2), where)


def _read_built_and_loaded(facts: Facts, match: re.Match[str], where: Evidence) -> None:
    """Read the compiled and the loaded cuDNN of Paddle or TensorRT. A newer one than the compiled is no failure."""
    built, loaded = match.groups()
    if _cut(loaded, built) < _cut(built, loaded):
        facts.add("cudnn_built", built, where)
        facts.add("cudnn_loaded", loaded, where)
        facts.add("cudnn_older", loaded, where)


def _cut(version: str, other: str) -> list[int]:
    """Return the numbers of a version, as many as both versions have."""
    return [int(n) for n in version.split(".")][: other.count(".") + 1]


def _read_torch_pair(facts: Facts, match: re.Match[str], where: Evidence) -> None:
    """Read the compiled and the loaded cuDNN of PyTorch: (8, 3, 2), or 7102."""
    built, found = (g.strip("() ") for g in match.groups())
    for name, text in (("cudnn_built", built), ("cudnn_loaded", found)):
        facts.add(name, ".".join(text.replace(" ", "").split(",")) if "," in text else spelled(text), where)


def _read_kernels(facts: Facts, match: re.Match[str], where: Evidence) -> None:
    """Read a build's arch list: two or more sm_XY on one line."""
    names = re.findall(r"sm_(\d{2,3})", match.group(0))
    if len(names) > 1:
        facts.add("kernels", " ".join(f"{n[:-1]}.{n[-1]}" for n in names), where)


def _read_plain_kernels(facts: Facts, match: re.Match[str], where: Evidence) -> None:
    """Read the architectures of llama.cpp (700, 750) or PaddlePaddle (70 75), and that of the GPU."""
    gpu, listed = match.group("gpu"), re.findall(r"\d{2,4}", match.group("kernels"))
    scale = 100 if any(len(n) > 2 and int(n) >= 300 for n in (gpu, *listed)) else 10
    facts.add("capability", f"{int(gpu) // scale}.{int(gpu) % scale // (scale // 10)}", where)
    names = (f"{int(n) // scale}.{int(n) % scale // (scale // 10)}" for n in listed)
    facts.add("kernels", " ".join(names), where)


def _read_capability(facts: Facts, match: re.Match[str], where: Evidence) -> None:
    text = match.group(1)
    facts.add("capability", text if "." in text else f"{text[:-1]}.{text[-1]}", where)


def _read_missing(facts: Facts, match: re.Match[str], where: Evidence) -> None:
    for name in re.findall(_SONAME, match.group(0))[:6]:
        facts.add("missing", name, where)


_I = re.IGNORECASE
READERS: tuple[tuple[tuple[str, ...], re.Pattern[str], Reader], ...] = (
    ((":", "="), KEYED, keyed),
    (("driver version", "kmd version"), re.compile(r"(?:driver|kmd) version:? {0,4}(\d{3}\.\d{1,3}(?:\.\d{1,3})?)", _I), _make_reader("driver")),
    (("kernel module",), re.compile(r"kernel module(?: for \S{1,12})? {1,4}(\d{3}\.\d{1,3}(?:\.\d{1,3})?)", _I), _make_reader("driver")),
    (("driver",), re.compile(r"driver:? (\d{3}\.\d{2,3}(?:\.\d{1,3})?)", _I), _make_reader("driver")),
    (("insufficient driver",), re.compile(r"driver version: (\d{3}\.\d{1,3}(?:\.\d{1,3})?)", _I), _make_reader("driver")),
    (("version:",), re.compile(r"CUDA(?: UMD)? Version: {0,4}(\d{1,2}\.\d)"), _make_reader("driver_cuda")),
    (("found version",), re.compile(r"found version (\d{4,5})\b", _I), _make_number_reader("driver_cuda")),
    (("wddm", " tcc "), re.compile(r"\b(WDDM|TCC|MCDM)\b"), _make_reader("driver_model")),
    (("e. process", "e. thread", "prohibited"), re.compile(r"\b(E\. (?:Process|Thread)|Prohibited)\b"), _make_reader("compute_mode")),
    (("mib /", "mib/"), re.compile(r"(\d{1,7}) ?MiB {0,2}/ {0,4}\d{1,7} ?MiB"), _make_reader("used_mib")),
    (("sm_", "compute_"), re.compile(r"sm_\d{2,3}(?:[ ,'\"\]\[]{1,4}(?:sm|compute)_\d{2,3}){1,40}"), _read_kernels),
    (("compiled for",), re.compile(r"CUDA arch (?P<gpu>\d{2,4})\b.{0,40}compiled for: {0,2}(?P<kernels>\d[\d, ]{1,120})"), _read_plain_kernels),
    (("compiled for",), re.compile(r"was compiled for (?P<kernels>\d[\d, ]{1,120}), but your current GPU is (?P<gpu>\d{2,4})\b"), _read_plain_kernels),
    (("capability",), re.compile(r"(?:capability:?|capability of) (?:sm_)?(\d{1,2}\.\d|\d{2,3})\b", _I), _read_capability),
    (("(cc)",), re.compile(r"compute capability \(CC\) (\d{1,2}\.\d)\b"), _read_capability),
    (("hardware cc",), re.compile(r"- (\d{1,2}\.\d) which supports hardware CC\b"), _make_reader("kernel")),
    (("minor:",), re.compile(r"major: (\d{1,2}) minor: \d", _I), _make_reader("major")),
    (("(sm_",), re.compile(r"\(sm_(\d{2,3})\)"), _read_capability),
    (("compute_capability",), re.compile(r"compute_capability = (\d)\d0\b"), _make_reader("major")),
    (("bytes free",), re.compile(r"(\d{1,14}) bytes free"), _make_reader("free_bytes")),
    (("limit:",), re.compile(r"^Limit: {1,40}(\d{1,14})$"), _make_reader("bfc_limit")),
    (("inuse:",), re.compile(r"^InUse: {1,40}(\d{1,14})$"), _make_reader("bfc_in_use")),
    (("bytes total",), re.compile(r"(\d{1,14}) bytes total"), _make_reader("total_bytes")),
    (("gib is free", "gib free", "mib free", "mib is free"), re.compile(r"(\d{1,5}(?:\.\d{1,3})? [GM]iB)(?: is)? free"), _make_reader("free")),
    (("used to build pytorch",), re.compile(r"CUDA used to build PyTorch: (\d{1,2}\.\d)", _I), _make_reader("cuda_build")),
    (("used to build pytorch",), re.compile(r"CUDA used to build PyTorch: (?:None|could not collect)", _I), _make_fixed_reader("cpu_build", "yes")),
    (("pytorch (",), re.compile(r"PyTorch \((\d{1,2}\.\d)\)", _I), _make_reader("cuda_build")),
    (("_cuda",), re.compile(r"py3\.?\d{1,2}_cuda(\d{1,2}\.\d)", _I), _make_reader("cuda_build")),
    (("_cpu",), re.compile(r"py3\.?\d{1,2}_cpu"), _make_fixed_reader("cpu_build", "yes")),
    (("detected cuda version",), re.compile(r"detected CUDA version \((\d{1,2}\.\d)\)", _I), _make_reader("cuda")),
    (("release",), re.compile(r"tools, release (\d{1,2}\.\d)", _I), _make_reader("cuda")),
    (("/cuda-", "\\cuda\\v"), re.compile(r"(?:/cuda-|\\cuda\\v)(\d{1,2}\.\d)", _I), _make_reader("cuda_path")),
    (("compiled with",), re.compile(r"library: (\d{1,2}\.\d{1,2}\.\d{1,3}|\d{4,5}).{0,60}compiled with:? (\d{1,2}\.\d{1,2}\.\d{1,3}|\d{4,5})", _I), _read_pair),
    (("cudnn",), re.compile(r"(?:compiled|built|linked) (?:with|against|for) cudnn (?:version )?v?(\d{1,2}(?:\.\d{1,3}){1,2})\b.{0,60}?cudnn(?: version)?(?: in your machine)?(?: is|:)? v?(\d{1,2}(?:\.\d{1,3}){1,2})", _I), _read_built_and_loaded),
    (("found cudnn version",), re.compile(r"Found cuDNN version (\d{4,6}).{0,60}built against version (\d{4,6})", _I), _read_pair),
    (("minimum supported",), re.compile(r"minimum supported:? (\d{4,6})", _I), _make_reader("minimum")),
    (("installed version",), re.compile(r"installed version:? (\d{4,6})", _I), _make_reader("installed")),
    (("cudnn",), re.compile(r"cudnn {0,2}>= {0,2}(\d{1,2}(?:\.\d{1,3}){0,3}).{0,40}(?:required|needed)|requires cudnn {0,2}>= {0,2}(\d{1,2}(?:\.\d{1,3}){0,3})", _I), _read_required),
    (("_cuda",), re.compile(r"_cuda(\d{2,3})_cudnn"), lambda f, m, w: f.add("cuda_build", dotted(m.group(1)), w)),
    (("compiled against", "compiled  against"), re.compile(r"compiled {1,2}against {1,2}(\([\d, ]{3,16}\)|\d{4,5}) but (?:linked against|found runtime version) (\([\d, ]{3,16}\)|\d{4,5})", _I), _read_torch_pair),
    (("torch", "tensorflow", "jax", "keras", "numpy", "onnx", "ctrans", "flash", "xform", "triton", "cupy", "mxnet", "whisper", "bits", "cudatoolkit", "tf", "nvidia"), _NAMED, _read_named),
    (("cudnn",), re.compile(r"cudnn(?: version| ver)?[ :=v-]{1,4}(\d{1,2}\.\d{1,2}(?:\.\d{1,3}){0,2})", _I), _make_reader("cudnn")),
    (("cudnn-",), re.compile(r"cudnn-(?:windows|linux)-x86_64-(\d{1,2}\.\d{1,2}(?:\.\d{1,3}){0,2})", _I), _make_reader("cudnn")),
    (("/python", "python3", "\\python", "cpython-"), re.compile(r"(?:/python|python|cpython-)([23](?:\.\d{1,2}))(?=[/ ]|dist|$)", _I), _make_reader("python")),
    (("\\python3",), re.compile(r"\\python3(\d{1,2})\\", _I), lambda f, m, w: f.add("python", f"3.{m.group(1)}", w)),
    (("cpython-3",), re.compile(r"cpython-3(\d{1,2})m?-"), lambda f, m, w: f.add("python", f"3.{m.group(1)}", w)),
    ((":\\",), re.compile(r"(?<!\w)[A-Za-z]:\\\w"), _make_fixed_reader("os", "windows")),
    ((".dll",), re.compile(r"\.dll\b", _I), _make_fixed_reader("os", "windows")),
    (("wsl", "microsoft-standard", "/dev/dxg"), re.compile(r"\bWSL\w{0,8}|microsoft-standard|/dev/dxg|/usr/lib/wsl", _I), _make_fixed_reader("os", "wsl")),
    (("cannot open shared", "cannot be opened"), re.compile(_SONAME + r": {0,2}cannot open shared"), _read_missing),
    (("could not load", "couldn't open", "could not locate", "could not find", "unable to load any", "unable to open"),
     re.compile(rf"(?:could not (?:load|locate|find)|couldn't open|unable to (?:load any of|open)).{{0,60}}?{_SONAME}[^;:]{{0,120}}", _I), _read_missing),
    (("not found", "missing", "error loading"), re.compile(rf"{_SONAME}.? (?:is )?(?:not found|missing)|error loading .{{0,200}}?{_SONAME}", _I), _read_missing),
    (("successfully opened", "found in"), re.compile(rf"successfully opened .{{0,20}}library {_SONAME}", _I), _make_reader("loaded")),
    ((".so", ".dll"), re.compile(rf"(?:^|=> |\s)(/[\w./+-]{{1,200}}/{_SONAME})(?=$|\s|\))(?!.{{0,80}}(?:cannot|undefined|not found|symbol))"), _make_reader("present")),
    (("ld_library_path",), re.compile(r"LD_LIBRARY_PATH ?[=:] {0,2}['\"]?([/$][^\s'\";]{1,400})"), _make_reader("library_path")),
    (("cuda_visible_devices",), re.compile(r"CUDA_VISIBLE_DEVICES['\"]?\]? {0,3}[=:] {0,3}['\"]?([\w,\-\[\]/]{1,120}|)"), _make_reader("visible")),
    (("glibc",), re.compile(r"glibc[ -](2\.\d{1,2})", _I), _make_reader("glibc")),
)  # fmt: skip
