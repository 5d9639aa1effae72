"""Readers of exported texts."""

import yaml

from provision.model import Target

CPU = {"device": "cpu", "target": Target(platform="linux-x86_64", glibc="2.35")}


def document(text):
    return yaml.safe_load(text)


def instructions(text):
    """(instruction, its words) of a Dockerfile: continued lines joined, comments left out."""
    rows, held = [], ""
    for row in text.splitlines():
        if row.lstrip().startswith("#") or not row.strip():
            continue
        held += row.rstrip("\\") if row.endswith("\\") else row
        if not row.endswith("\\"):
            name, _, rest = held.partition(" ")
            rows.append((name, rest.strip()))
            held = ""
    assert not held
    return rows


def sections(text):
    """Header and sections of a definition file, as Apptainer's documents describe them."""
    found, name = {"": []}, ""
    for row in text.splitlines():
        if row.startswith("%"):
            name = row[1:].strip()
            found[name] = []
        elif row.strip() and not row.strip().startswith("#"):
            found[name].append(row.strip())
    return found
