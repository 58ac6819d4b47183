"""Models that can be used, with what they hold and what they cost.

Shown are the providers that there is a key for, or that need none; the key itself never is. A provider that is
named is shown with or without a key. Sizes are in tokens, prices in US dollars per million tokens, for input,
output, cache reads and cache writes; '?' is unknown. The default is used if no model is named, the small one for
titles and the like. No provider offers the models that play a script: 'opensesh models scripted' tells of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import ModelNotFoundError
from . import directory, output

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Iterable

    from ..config import Config
    from ..models.auth import Credential, Keyring
    from ..models.catalogue import Catalogue, ProviderInfo
    from ..models.model import Model
    from ..storage.protocol import Damage
    from .arguments import Parser


def configure(parser: Parser) -> None:
    """Declare the arguments."""
    parser.add_argument("provider", nargs="?", metavar="PROVIDER", help="only this one, with or without a key")
    parser.add_argument("--all", action="store_true", help="every provider there is, with or without a key")
    parser.add_argument("--refresh", action="store_true", help="fetch today's catalogue from models.dev first")
    directory.declare(parser)


class _Offer(NamedTuple):
    """A provider, and what can be had from it."""

    info: ProviderInfo
    credential: Credential | None
    models: list[Model]
    untrusted_reason: str
    """Why nothing is sent to it, if nobody has trusted an address that the project gave it."""


class _Chosen(NamedTuple):
    """The models that are used when nobody says."""

    default: str | None
    small: str | None
    problem: str | None = None


def run(options: Namespace) -> int:
    """Print the models."""
    from ..config import load
    from ..models.auth import Keyring
    from ..models.catalogue import Catalogue
    from ..models.model import SCRIPTED_MODELS, SCRIPTED_PROVIDER

    place = directory.place_of(options)
    config = load(place.directory, place.sandbox)
    damage: list[Damage] = []
    catalogue = Catalogue(config.document, report=damage.append)
    keyring = Keyring(config.document, report=damage.append)
    if options.refresh:
        catalogue.refresh()
    scripts = SCRIPTED_MODELS if options.provider == SCRIPTED_PROVIDER else {}
    offers = [] if scripts else list(_offers(catalogue, keyring, config, options))
    chosen = _chosen(catalogue, keyring, config)
    if options.json:
        output.print_json(_document(catalogue, offers, chosen) | ({"scripted": scripts} if scripts else {}))
    else:
        if scripts:
            output.table(("MODEL", "WHAT IT DOES"), list(scripts.items()))
            print()
        _print(catalogue, offers, chosen)
    output.tell_damage(damage)
    return 0


def _offers(catalogue: Catalogue, keyring: Keyring, config: Config, options: Namespace) -> Iterable[_Offer]:
    from ..models.provider_trust import untrusted_reason

    infos = [catalogue.provider(options.provider)] if options.provider else catalogue.providers()
    for info in infos:
        credential = keyring.credential(info)
        if credential is None and not options.provider and not options.all:
            continue
        models = list(catalogue.models(info.id).values())
        if credential is not None and not options.all:
            models = [model for model in models if credential.covers(model)]
        yield _Offer(info, credential, models, untrusted_reason(config, info.id))


def _chosen(catalogue: Catalogue, keyring: Keyring, config: Config) -> _Chosen:
    from ..models import choice

    try:
        default = choice.default_model(catalogue, keyring, config.document, choice.recent_models())
        small = choice.small_model(catalogue, keyring, config.document, default.provider_id) or default
    except ModelNotFoundError as error:
        return _Chosen(None, None, error.message)
    return _Chosen(default.ref, small.ref)


def _print(catalogue: Catalogue, offers: list[_Offer], chosen: _Chosen) -> None:
    import sys

    if offers:
        rows = [(offer.info.id, str(len(offer.models)), _key(offer)) for offer in offers]
        output.table(("PROVIDER", "MODELS", "KEY"), rows)
        for offer in offers:
            if offer.untrusted_reason:
                print(f"! {offer.untrusted_reason}")
        print()
    models = [model for offer in offers for model in offer.models]
    if models:
        heads = ("MODEL", "CONTEXT", "OUTPUT", "IN", "OUT", "CACHE", "NOTES")
        output.table(heads, [_row(model, chosen) for model in models])
        print()
    if chosen.problem:
        print(f"{chosen.problem[0].upper()}{chosen.problem[1:]}")
    else:
        print(f"default: {chosen.default}   small: {chosen.small}")
    origin = catalogue.origin
    print(f"Catalogue: {origin.label}, {origin.date}.", file=sys.stderr)


def _row(model: Model, chosen: _Chosen) -> tuple[str, ...]:
    rates = model.price.rates if model.price is not None else None
    prices = [_dollars(getattr(rates, name, None)) for name in ("input", "output", "cache_read", "cache_write")]
    cache = " / ".join(prices[2:])
    return (model.ref, _size(model.limit.context), _size(model.limit.output), *prices[:2], cache, _notes(model, chosen))


def _notes(model: Model, chosen: _Chosen) -> str:
    notes = [name for name, ref in (("default", chosen.default), ("small", chosen.small)) if ref == model.ref]
    notes += [model.status] if model.status != "active" else []
    notes += ["reasoning"] if model.capabilities.reasoning else []
    notes += ["no tools"] if not model.capabilities.tools else []
    notes += [f"dearer above {_size(tier.above)}" for tier in (model.price.tiers if model.price else ())[:1]]
    return ", ".join(notes)


def _key(offer: _Offer) -> str:
    if offer.credential is not None:
        return str(offer.credential.source)
    wanted = " or ".join(offer.info.env)
    return f"none: set {wanted}" if wanted else "none"


def _size(tokens: int) -> str:
    if not tokens:
        return "?"
    if tokens < 10_000:
        return f"{tokens:,}"
    return f"{tokens / 1_000_000:.1f}M" if tokens >= 1_000_000 else f"{tokens // 1000}k"


def _dollars(rate: float | None) -> str:
    return "?" if rate is None else f"{rate:.4f}".rstrip("0").rstrip(".")


def _document(catalogue: Catalogue, offers: list[_Offer], chosen: _Chosen) -> dict[str, Any]:
    origin = catalogue.origin
    return {
        "default": chosen.default,
        "small": chosen.small,
        "problem": chosen.problem,
        "catalogue": {"source": origin.label, "date": origin.date},
        "providers": [_provider_document(offer) for offer in offers],
    }


def _provider_document(offer: _Offer) -> dict[str, Any]:
    source = offer.credential.source if offer.credential is not None else None
    return {
        "id": offer.info.id,
        "name": offer.info.name,
        "key": {"kind": source.kind, "name": source.name} if source is not None else None,
        "env": list(offer.info.env),
        "configured": offer.info.configured,
        "untrusted": offer.untrusted_reason or None,
        "models": [_model_document(model) for model in offer.models],
    }


def _model_document(model: Model) -> dict[str, Any]:
    """What is not known is ``null``, never 0."""
    import msgspec

    return {
        "id": model.id,
        "name": model.name,
        "status": model.status,
        "released": model.release_date or None,
        "limit": {name: getattr(model.limit, name) or None for name in ("context", "input", "output")},
        "cost": msgspec.to_builtins(model.price.rates) if model.price is not None else None,
        "tiers": [msgspec.to_builtins(tier) for tier in model.price.tiers] if model.price is not None else [],
        "reasoning": model.capabilities.reasoning,
        "tools": model.capabilities.tools,
        "input": sorted(model.capabilities.input),
        "variants": list(model.variants),
    }
