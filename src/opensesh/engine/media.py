"""Whether a file can be sent to a model, and if not, why."""

from __future__ import annotations

import binascii
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..models.model import Model

_LARGEST = 20 * 1024 * 1024
_LARGEST_FOR_CLAUDE = 5 * 1024 * 1024
_IMAGES = ("image/png", "image/jpeg", "image/jpg", "image/gif", "image/webp")
_IMAGES_OF_GEMINI = ("image/heic", "image/heif")
_SIGNATURES = {
    "image/png": (b"\x89PNG",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF8",),
    "image/webp": (b"RIFF",),
    "application/pdf": (b"%PDF", b"\xef\xbb\xbf%PDF"),
}


def problem_with(mime: str, url: str, model: Model) -> str | None:
    """Why this file cannot go to this model; ``None`` if it can."""
    kind = modality(mime)
    if kind is not None and kind not in model.capabilities.input:
        return f"this model does not take {'a PDF' if kind == 'pdf' else kind} as input"
    if not _is_taken(mime, kind, model):
        return "this model does not take files of its type"
    if not url.startswith("data:"):
        return None if url.isascii() and url.startswith(("http://", "https://")) else "it is not where it was"
    size, problem = _inspect("image/jpeg" if mime == "image/jpg" else mime, url)
    if problem:
        return problem
    most = _LARGEST_FOR_CLAUDE if kind == "image" and "claude" in model.wire_id.lower() else _LARGEST
    return f"it is larger than {most // 1024 // 1024} MB" if size > most else None


def modality(mime: str) -> str | None:
    """What kind of input a file of this type is: image, audio, video or pdf; ``None`` for anything else."""
    if mime == "application/pdf":
        return "pdf"
    family = mime.partition("/")[0]
    return family if family in ("image", "audio", "video") else None


def _is_taken(mime: str, kind: str | None, model: Model) -> bool:
    """Of images only some formats are; of documents only text, but Bedrock's adapter knows more."""
    if kind == "image":
        return mime in _IMAGES or (mime in _IMAGES_OF_GEMINI and "gemini" in model.wire_id.lower())
    return kind is not None or mime.startswith("text/") or model.npm == "@ai-sdk/amazon-bedrock"


def _inspect(mime: str, url: str) -> tuple[int, str | None]:
    """How many bytes a data URL holds, and what is wrong with them."""
    head, _, data = url.partition(",")
    if not data:
        return 0, "it is empty"
    if not head.endswith(";base64"):
        return len(data), "its content is not base64"
    try:
        content = binascii.a2b_base64(data, strict_mode=True)
    except ValueError:
        return 0, "its content is damaged"
    signatures = _SIGNATURES.get(mime)
    if signatures and not content.startswith(signatures):
        return len(content), f"it is not really {mime}"
    return len(content), None
