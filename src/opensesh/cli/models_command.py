"""List the available models, with their limits and prices.

Providers are listed if there is a key for them, or if they need none; a provider that is named, always. Keys are never
printed. Sizes are in tokens, prices in US dollars per million tokens of input, output, cache reads and cache writes;
'?' is unknown. The default model is used if none is named, the small one for titles and similar tasks.
'opensesh models scripted' lists the models that play a script.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import Any, NamedTuple

import msgspec

from ..config import load
from ..errors import ModelNotFoundError
from ..models import choice
from ..models.auth import Credential, Keyring
from ..models.catalogue import Catalogue
from ..models.model import SCRIPTED_MODELS, SCRIPTED_PROVIDER, Model, ProviderInfo
from ..models.provider_trust import untrusted_reason
from ..project import resolve
from ..storage.protocol import Damage, ignore_damage
from . import output
from .command_arguments import CommandParser
from .directory_config import add_directory_option, load_config


def configure(parser: CommandParser) -> None:
    """Declare the arguments."""
    parser.add_argument("provider", nargs="?", metavar="PROVIDER", help="only this provider, even without a key")
    parser.add_argument("--all", action="store_true", help="all providers, even without a key")
    parser.add_argument("--refresh", action="store_true", help="download the current catalogue from models.dev first")
    add_directory_option(parser)


class _Provider(NamedTuple):
    """A provider with its key and models."""

    info: ProviderInfo
    credential: Credential | None
    models: list[Model]
    untrusted_reason: str
    """Why nothing is sent to it: the project configures an address that the user has not trusted."""
    unusable_login: str
    """Why the login in ``auth.json`` is not used, if there is one."""


class _Defaults(NamedTuple):
    """The models that are used if none is named."""

    default: str | None
    small: str | None
    problem: str | None = None


def run(options: Namespace) -> int:
    """Print the models."""
    _, config = load_config(options)
    damage: list[Damage] = []
    catalogue = Catalogue(config.document, report=damage.append)
    keyring = Keyring(config.document, report=damage.append)
    if options.refresh:
        catalogue.refresh()
    scripts = SCRIPTED_MODELS if options.provider == SCRIPTED_PROVIDER else {}
    infos = [catalogue.provider(options.provider)] if options.provider and not scripts else catalogue.providers()
    providers: list[_Provider] = []
    for info in () if scripts else infos:
        credential = keyring.credential(info)
        if credential is not None or options.provider or options.all:
            models = list(catalogue.models(info.id).values())
            if credential is not None and not options.all:
                models = [model for model in models if credential.covers(model)]
            reasons = untrusted_reason(config, info.id), keyring.unusable_login(info.id)
            providers.append(_Provider(info, credential, models, *reasons))
    try:
        default = choice.default_model(catalogue, keyring, config.document, choice.recent_models())
        small = choice.small_model(catalogue, keyring, config.document, default.provider_id) or default
        defaults = _Defaults(default.ref, small.ref)
    except ModelNotFoundError as error:
        defaults = _Defaults(None, None, error.message)
    if options.json:
        document = {
            "default": defaults.default,
            "small": defaults.small,
            "problem": defaults.problem,
            "catalogue": {"source": catalogue.origin.label, "date": catalogue.origin.date},
            "providers": [_document(provider) for provider in providers],
        }
        output.print_json(document | ({"scripted": scripts} if scripts else {}))
    else:
        if scripts:
            output.table(("MODEL", "WHAT IT DOES"), list(scripts.items()))
            print()
        _print_models(catalogue, providers, defaults)
    output.report_damage(damage)
    return 0


def usable_models(directory: str) -> list[tuple[str, str]]:
    """Return the models that can be used in a directory, each with its name, and those that play a script."""
    location = resolve(directory)
    document = load(location.directory, location.sandbox).document
    catalogue, keyring = Catalogue(document, report=ignore_damage), Keyring(document, report=ignore_damage)
    usable = list(SCRIPTED_MODELS.items())[:1]
    for info in catalogue.providers():
        credential = keyring.credential(info)
        if credential is not None:
            models = catalogue.models(info.id).values()
            usable += [(model.ref, model.name) for model in models if credential.covers(model)]
    return usable


def _print_models(catalogue: Catalogue, providers: list[_Provider], defaults: _Defaults) -> None:
    if providers:
        keys: list[tuple[str, str, str]] = []
        for info, credential, models, _, unusable_login in providers:
            variables = " or ".join(info.env)
            key = f"none: set {variables}" if variables else "none"
            key += f" ({unusable_login})" if unusable_login else ""
            keys.append((info.id, str(len(models)), key if credential is None else str(credential.source)))
        output.table(("PROVIDER", "MODELS", "KEY"), keys)
        reasons = [provider.untrusted_reason for provider in providers if provider.untrusted_reason]
        print("".join(f"! {reason}\n" for reason in reasons))
    rows: list[tuple[str, ...]] = []
    for model in (model for provider in providers for model in provider.models):
        rates = model.price.rates if model.price is not None else None
        prices: list[str] = []
        for name in ("input", "output", "cache_read", "cache_write"):
            rate = getattr(rates, name, None)
            prices.append("?" if rate is None else f"{rate:.4f}".rstrip("0").rstrip("."))
        notes = [name for name, ref in (("default", defaults.default), ("small", defaults.small)) if ref == model.ref]
        notes += [model.status] if model.status != "active" else []
        notes += ["reasoning"] if model.capabilities.reasoning else []
        notes += ["no tools"] if not model.capabilities.tools else []
        notes += [f"higher price above {_size(tier.above)}" for tier in (model.price.tiers if model.price else ())[:1]]
        limits = (_size(model.limit.context), _size(model.limit.output))
        rows.append((model.ref, *limits, *prices[:2], " / ".join(prices[2:]), ", ".join(notes)))
    if rows:
        output.table(("MODEL", "CONTEXT", "OUTPUT", "IN", "OUT", "CACHE", "NOTES"), rows)
        print()
    if defaults.problem:
        print(output.folded(f"{defaults.problem[0].upper()}{defaults.problem[1:]}"))
    else:
        print(f"default: {defaults.default}   small: {defaults.small}")
    print(f"Catalogue: {catalogue.origin.label}, {catalogue.origin.date}.", file=sys.stderr)


def _document(provider: _Provider) -> dict[str, Any]:
    """Return a provider and its models as a document. Unknown values are ``null``, never 0."""
    source = provider.credential.source if provider.credential is not None else None
    return {
        "id": provider.info.id,
        "name": provider.info.name,
        "key": {"kind": source.kind, "name": source.name} if source is not None else None,
        "env": list(provider.info.env),
        "configured": provider.info.configured,
        "untrusted": provider.untrusted_reason or None,
        "models": [
            {
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
            for model in provider.models
        ],
    }


def _size(tokens: int) -> str:
    if not tokens:
        return "?"
    if tokens < 10_000:
        return f"{tokens:,}"
    return f"{tokens / 1_000_000:.1f}M" if tokens >= 1_000_000 else f"{tokens // 1000}k"
