"""Decoding and encoding records, relative to the standard library's json."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any

from opensesh.records import codec, read_part

from .report import interleaved, line
from .stores import Builder


def run() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Builder(folder).session(1_000)
        files = [os.path.join(base, name) for base, _, names in os.walk(os.path.join(folder, "part")) for name in names]
        blobs = [open(path, "rb").read() for path in files]  # noqa: SIM115
    documents: list[Any] = [codec.loads(blob) for blob in blobs]

    def encode_plain() -> None:
        for document in documents:
            json.dumps(document, indent=2, ensure_ascii=False).encode()

    def encode_ours() -> None:
        for document in documents:
            codec.dumps(document)

    decode_json, decode_ours, decode_view = interleaved(
        lambda: [json.loads(blob) for blob in blobs],
        lambda: [codec.loads(blob) for blob in blobs],
        lambda: [read_part(codec.loads(blob)) for blob in blobs],
    )
    line("decode: json / ours (higher is better)", decode_json / decode_ours, "json.loads", 2.0, at_least=True)
    line("decode with a typed view: json / ours", decode_json / decode_view, "json.loads", 1.0, at_least=True)
    plain, ours = interleaved(encode_plain, encode_ours)
    line(
        "encode, JavaScript-exact: json / ours (higher is better)",
        plain / ours,
        "json.dumps(indent=2)",
        1.5,
        at_least=True,
    )
