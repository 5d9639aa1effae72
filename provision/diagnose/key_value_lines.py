"""Read lines of the form "key: value" of issue templates and collect_env."""

from __future__ import annotations

import re
from collections.abc import Callable

from ..model import Evidence
from .facts import Facts
from .version_texts import VERSION, dotted, package

KEYED = re.compile(
    r"^[\s>*#|-]{0,8}([A-Za-z][\w /.()-]{1,40}?)[*`]{0,2}\s{0,12}[:=]\s{0,4}[*`]{0,2}(\S.{0,400})$"
)


def keyed(facts: Facts, match: re.Match[str], where: Evidence) -> None:
    """Read a line "key: value" of an issue template or of collect_env."""
    key, value = match.group(1).strip().lower(), match.group(2).strip()
    for words, reader in _KEYS:
        if key in words:
            reader(facts, value, where)
            return


def _read_driver(facts: Facts, value: str, where: Evidence) -> None:
    for version in re.findall(r"(?<![\d.])(\d{3}\.\d{1,3}(?:\.\d{1,3})?)(?![\d.]\d)", value)[:3]:
        facts.add("driver", version, where)


def _read_cuda(facts: Facts, value: str, where: Evidence) -> None:
    versions = re.findall(r"(?<![\d.])(\d{1,2}\.\d)(?:\.\d{1,3})?(?![\d])", value) or re.findall(
        r"\b(1[0-9])\b", value
    )
    if "driver" in value and "toolkit" not in value and "nvcc" not in value:
        facts.add("driver_cuda", versions[0], where) if versions else None
        return
    for version in versions[:3]:
        facts.add("cuda", version, where)


def _read_torch(facts: Facts, value: str, where: Evidence) -> None:
    low = value.lower()
    if match := re.match(rf"[=<> v]{{0,4}}{VERSION}", low):
        if not low.startswith("<"):
            package(facts, "torch", match.group(1), match.group(2), where)
        low = low[match.end() :]
    if match := re.search(
        r"(?:built (?:for|with)|cuda|cu)[ _]?(\d{1,2}\.\d|\d{2,3})\b|cuda(\d{1,2}\.\d)_", low
    ):
        digits = match.group(1) or match.group(2)
        facts.add("cuda_build", digits if "." in digits else dotted(digits), where)
    if re.search(r"\bcpu\b", low):
        facts.add("cpu_build", "yes", where)


def _make_package_reader(name: str) -> Callable[[Facts, str, Evidence], None]:
    def reader(facts: Facts, value: str, where: Evidence) -> None:
        for match in list(re.finditer(VERSION, value))[-1:]:
            package(facts, name, match.group(1), match.group(2), where)
        if "gpu" in value.lower():
            facts.add("gpu_package", name, where)
        if found_cuda := re.search(r"\bcuda ?(1[0-9](?:\.\d)?)", value.lower()):
            facts.add("cuda_build", found_cuda.group(1), where)

    return reader


def _read_cudnn(facts: Facts, value: str, where: Evidence) -> None:
    for match in re.finditer(r"(?<![\d.])(\d{1,2}(?:\.\d{1,2}){0,3})(?![\d])(\s{0,2}\w{0,12})", value):
        name = "cudnn_loaded" if "loaded" in match.group(2) else "cudnn"
        facts.add(name, match.group(1), where)


def _read_python(facts: Facts, value: str, where: Evidence) -> None:
    if match := re.match(r"(?:python )?v?([23]\.\d{1,2})", value.lower()):
        facts.add("python", match.group(1), where)


def _read_os(facts: Facts, value: str, where: Evidence) -> None:
    low = value.lower()
    if "wsl" in low:
        facts.add("os", "wsl", where)
    elif re.search(r"windows|\bwin[ -]?(?:7|8|1[01])\b", low):
        facts.add("os", "windows", where)
    elif re.search(r"mac ?os|darwin|os x", low):
        facts.add("os", "macos", where)
    else:
        facts.add("os", "linux", where)


def _make_fact_reader(name: str) -> Callable[[Facts, str, Evidence], None]:
    def reader(facts: Facts, value: str, where: Evidence) -> None:
        facts.add(name, value, where)

    return reader


_KEYS: tuple[tuple[tuple[str, ...], Callable[[Facts, str, Evidence], None]], ...] = (
    (("driver", "nvidia driver version", "nvidia driver", "driver version", "gpu driver"), _read_driver),
    (("cuda", "cuda version", "cuda ver", "cuda/cudnn version", "cuda toolkit", "toolkit", "gpu toolkit version", "cuda toolkit version", "cuda runtime version", "cuda  version"), _read_cuda),
    (("torch", "pytorch", "torch version"), _read_torch),
    (("tensorflow", "tensorflow version", "tf", "tensorflow-gpu"), _make_package_reader("tensorflow")),
    (("jax", "jax version"), _make_package_reader("jax")),
    (("jaxlib",), _make_package_reader("jaxlib")),
    (("jax_cuda12_plugin", "jax-cuda12-plugin"), _make_package_reader("jax-cuda12-plugin")),
    (("ctranslate2",), _make_package_reader("ctranslate2")),
    (("cudnn", "cudnn version", "cudnn ver"), _read_cudnn),
    (("python", "python version"), _read_python),
    (("os", "operating system", "platform", "os platform and distribution"), _read_os),
    (("container", "docker", "docker image", "image"), _make_fact_reader("container")),
    (("host",), _make_fact_reader("host")),
    (("install", "installed from", "installation"), _make_fact_reader("install")),
    (("event",), _make_fact_reader("event")),
    (("ld_library_path",), _make_fact_reader("library_path")),
    (("cuda_visible_devices",), _make_fact_reader("visible")),
    (("gpu", "gpu model and memory", "gpu model", "gpus"), _make_fact_reader("gpu_said")),
)  # fmt: skip
