"""What a share says of the models that were asked, so that a page can name them: nothing that is set up here alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..config import Config
    from ..models.model import Model
    from ..records import Document


def described(config: Config, provider_id: str, model_id: str) -> Document:
    """What is known of a model, by its provider's name and its own."""
    from ..models.catalogue import Catalogue

    model = Catalogue(config.document).known(provider_id, model_id)
    return {"id": model_id, "providerID": provider_id, "name": model_id} if model is None else _document(model)


def _document(model: Model) -> Document:
    """In OpenCode's shape, without the options, headers and address, which may hold keys and names of machines."""
    rates = model.price.rates if model.price else None
    inputs, outputs = model.capabilities.input, model.capabilities.output
    kinds = ("text", "audio", "image", "video", "pdf")
    return {
        "id": model.id,
        "providerID": model.provider_id,
        "name": model.name or model.id,
        "status": model.status,
        "cost": {
            "input": (rates and rates.input) or 0,
            "output": (rates and rates.output) or 0,
            "cache": {"read": (rates and rates.cache_read) or 0, "write": (rates and rates.cache_write) or 0},
        },
        "limit": {"context": model.limit.context, "output": model.limit.output},
        "capabilities": {
            "temperature": model.capabilities.temperature,
            "reasoning": model.capabilities.reasoning,
            "attachment": model.capabilities.attachment,
            "toolcall": model.capabilities.tools,
            "input": {kind: kind in inputs for kind in kinds},
            "output": {kind: kind in outputs for kind in kinds},
        },
        "release_date": model.release_date,
    }
