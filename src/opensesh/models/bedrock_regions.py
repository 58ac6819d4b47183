"""Where Bedrock is called, and what a model is called there.

Bedrock serves many models only across the regions of a continent, under a name with that continent in front: what the
catalogue lists as ``anthropic.claude-...`` is refused in ``us-east-1``, and ``us.anthropic.claude-...`` is served.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from ..errors import ModelError

PREFIXES = ("global.", "us.", "eu.", "apac.", "jp.", "au.", "ca.", "in.", "us-gov.")
"""How a name begins that says where the model is served."""

_EUROPE = ("eu-west-1", "eu-west-2", "eu-west-3", "eu-north-1", "eu-central-1", "eu-south-1", "eu-south-2")


class _Rule(NamedTuple):
    regions: tuple[str, ...]
    """How their names begin."""
    models: tuple[str, ...]
    """Words in the names of the models that are meant."""
    prefix: str


# The first that fits decides.
_RULES = (
    _Rule(("us-gov-",), ("",), ""),
    _Rule(("us-",), ("claude", "deepseek", "nova-micro", "nova-lite", "nova-pro", "nova-premier", "nova-2"), "us."),
    _Rule(_EUROPE, ("claude", "nova-lite", "nova-micro", "llama3", "pixtral"), "eu."),
    _Rule(("ap-southeast-2", "ap-southeast-4"), ("anthropic.claude-sonnet-4-5", "anthropic.claude-haiku"), "au."),
    _Rule(("ap-northeast-1",), ("claude", "nova-lite", "nova-micro", "nova-pro"), "jp."),
    _Rule(("ap-",), ("claude", "nova-lite", "nova-micro", "nova-pro"), "apac."),
)


def region(given: str | None) -> str:
    """The region to call: the one ``given``, else the environment's, and ``us-east-1`` if nobody says."""
    name = given or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    if not re.fullmatch(r"[A-Za-z0-9-]+", name):  # it becomes a part of the address
        raise ModelError(f"{name!r} is no region of Amazon's; one is called us-east-1, for example")
    return name


def name_in(place: str, model: str) -> str:
    """What ``model`` is called in the region ``place``. Names that say where, and addresses of one's own, stay."""
    if model.startswith((*PREFIXES, "arn:")):
        return model
    for rule in _RULES:
        if place.startswith(rule.regions) and any(word in model for word in rule.models):
            return rule.prefix + model
    return model
