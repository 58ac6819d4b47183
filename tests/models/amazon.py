"""Botocore without a network: what it would send, and how it reads a response."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Raw:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def stream(self, *_: object, **__: object) -> Iterator[bytes]:
        yield self._data

    def close(self) -> None:
        pass


def converse_stream(answer: bytes, model_id: str, body: dict[str, Any]) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The address and body that botocore, which checks ``body``, would send; and the answer as it reads it."""
    session: Any = pytest.importorskip("botocore.session").Session()
    awsrequest: Any = pytest.importorskip("botocore.awsrequest")
    keys = {"aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": "secret"}
    client = session.create_client("bedrock-runtime", region_name="us-east-1", **keys)
    sent: list[Any] = []

    def send(request: Any, **_: object) -> Any:
        sent.append(request)
        headers = {"content-type": "application/vnd.amazon.eventstream"}
        return awsrequest.AWSResponse(request.url, 200, headers, _Raw(answer))

    client.meta.events.register("before-send.bedrock-runtime.ConverseStream", send)
    response = client.converse_stream(modelId=model_id, **body)
    return sent[0].url, json.loads(sent[0].body), response
