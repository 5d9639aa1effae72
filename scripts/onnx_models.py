"""Write provision/probes/onnx_models.json: the ONNX models of the graded convolutions and products, as base64.

    python scripts/onnx_models.py          # rewrite the file
    python scripts/onnx_models.py --check  # exit 1 if the file differs

An ONNX file is a protocol buffer. These models need seven message types of onnx.proto3
(https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3). They are written here field by field, so that no
environment needs the package onnx. Input and weight are both inputs of the graph, so one model works for any
numbers.
"""

from __future__ import annotations

import argparse
import base64
import json
import runpy
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "provision/probes/onnx_models.json"
ELEMENT_TYPES = {"float32": 1, "float16": 10}
"""TensorProto.DataType of each dtype."""
IR_VERSION, OPSET = 8, 13
"""The oldest that every onnxruntime since 1.10 reads."""
_INT, _INTS = 2, 7
"""AttributeProto.AttributeType."""


def varint(number: int) -> bytes:
    """Encode an unsigned integer, seven bits a byte, the lowest first."""
    coded = bytearray()
    while number > 127:
        coded.append(number & 127 | 128)
        number >>= 7
    return bytes([*coded, number])


def field(number: int, value: int | str | bytes) -> bytes:
    """Encode one field: integers as varint, texts and messages with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def attribute(name: str, value: int | Sequence[int]) -> bytes:
    """Encode an AttributeProto with an integer or a list of integers."""
    if isinstance(value, int):
        return field(1, name) + field(3, value) + field(20, _INT)
    return field(1, name) + b"".join(field(8, one) for one in value) + field(20, _INTS)


def tensor(name: str, element_type: int) -> bytes:
    """Encode a ValueInfoProto: a tensor of this element type and of any shape."""
    return field(1, name) + field(2, field(1, field(1, element_type)))


def model(
    operator: str, attributes: Mapping[str, int | Sequence[int]], dtype: str, inputs: str = "xw"
) -> bytes:
    """Encode a model with one node: y = operator(x, w), or of other inputs."""
    kind = ELEMENT_TYPES[dtype]
    node = b"".join(field(1, name) for name in inputs) + field(2, "y") + field(4, operator)
    node += b"".join(field(5, attribute(name, value)) for name, value in sorted(attributes.items()))
    graph = field(1, node) + field(2, "g") + b"".join(field(11, tensor(name, kind)) for name in inputs)
    graph += field(12, tensor("y", kind))
    return field(1, IR_VERSION) + field(8, field(2, OPSET)) + field(7, graph)


def attributes(case: Mapping[str, Any], operator: str) -> dict[str, int | Sequence[int]]:
    """Return the attributes of Conv or ConvTranspose for a case of the graded convolutions.

    ConvTranspose reverses the sizes of Conv. If the stride does not divide the size, `output_padding` adds
    the rest.
    """
    result: dict[str, int | Sequence[int]] = {
        "group": case.get("groups", 1),
        "kernel_shape": case["kernel"],
        "pads": [*case["padding"], *case["padding"]],
        "strides": case["stride"],
    }
    if operator == "ConvTranspose" and not case.get("transposed"):
        sizes = zip(case["size"], case["kernel"], case["stride"], case["padding"], strict=True)
        result["output_padding"] = [(n + 2 * p - k) % s for n, k, s, p in sizes]
    return result


def models(cases: Mapping[str, Mapping[str, Any]]) -> dict[str, bytes]:
    """Return the models by "case operator dtype", and those of matrix products by "operator dtype"."""
    products = {"MatMul": "xw", "Gemm": "xwb"}
    return {
        f"{operator} {dtype}": model(operator, {}, dtype, inputs)
        for operator, inputs in products.items()
        for dtype in ELEMENT_TYPES
    } | {
        f"{name} {operator} {dtype}": model(operator, attributes(case, operator), dtype)
        for name, case in cases.items()
        if not name.endswith(("_channels_last", "_autotuned"))  # choices of other frameworks
        for operator in ("Conv", "ConvTranspose")
        for dtype in ELEMENT_TYPES
    }


def text() -> str:
    """Return the text of the file."""
    cases = runpy.run_path(str(ROOT / "provision/probes/operations.py"))["CASES"]
    encoded = {name: base64.b64encode(data).decode() for name, data in models(cases).items()}
    return json.dumps(encoded, indent=1) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Write or check the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="exit 1 where the file differs, and write nothing"
    )
    options = parser.parse_args(argv)
    if options.check:
        return int(FILE.read_text(encoding="utf-8") != text())
    FILE.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
