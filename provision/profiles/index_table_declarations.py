"""The declared tables of indexes.yaml: addresses of indexes, pages of wheels, ABIs of builds and glibc of wheels."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping

from provision import model

from .table_mapping import Kind

_OF_BUILD, _OF_RELEASE = {"version", "label"}, {"release"}

PAGE_TABLES = {
    "indexes": Kind(model.IndexAddress, "indexes", ("index",), ("index", "url")),
    "pages": Kind(
        model.WheelPage, "pages", ("framework", "packages"), ("packages", "url"), words=("packages",)
    ),
    "abis": Kind(model.CxxAbi, "abis", ("framework", "versions", "cuda", "platform"), ("versions", "cxx11")),
    "wheel_glibc": Kind(
        model.WheelGlibc,
        "wheel_glibc",
        ("package", "versions"),
        ("package", "versions", "glibc", "source", "read"),
    ),
}


def find_page_problems(row: Mapping[str, object]) -> Iterator[str]:
    """Yield the mistakes in the placeholders of a page's row."""
    url, rule = row.get("url"), row.get("local")
    if not isinstance(url, str):
        return
    try:
        names = {name for _, name, _, _ in string.Formatter().parse(url) if name is not None}
    except ValueError as error:
        yield f"url: {error}"
        return
    if unknown := sorted(names - _OF_BUILD - _OF_RELEASE):
        yield f"url: {{{unknown[0]}}} is not one of {{version}}, {{label}} and {{release}}"
    if names & _OF_RELEASE and names & _OF_BUILD:
        yield "url: a page is of one release or of one build, not of both"
    if names & _OF_RELEASE and not rule:
        yield "local: missing. It tells for which build a wheel on the page is"
    if isinstance(rule, str) and not ("{minor}" in rule) ^ ("{digits}" in rule):
        yield "local: expected {minor} or {digits}, the release of the framework"
