"""Build the catalogue that opensesh ships from a copy of https://models.dev/api.json.

    python scripts/build_catalogue.py api.json[.gz] --date 2026-09-28 [--earlier old.json ...]

The result is one zip with an ``index.json`` (who the providers are, and the day of the data) and one member a provider
(its models), so that looking up one model reads a few kilobytes. Prose and what nothing here uses is left out. The same
input gives the same bytes.

Models with a price that only earlier copies list have members of their own, and are deprecated: sessions of the past
can be priced, and no list offers them. The first of several earlier copies that lists a model is used.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
import zipfile
from datetime import date
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent.parent / "src" / "opensesh" / "models" / "data" / "models.zip"
ORIGIN = "https://models.dev/api.json"

PROVIDER_FIELDS = ("name", "env", "npm", "api")
MODEL_FIELDS = (
    "name",
    "family",
    "release_date",
    "status",
    "attachment",
    "reasoning",
    "reasoning_options",
    "temperature",
    "tool_call",
    "interleaved",
    "modalities",
    "limit",
    "cost",
    "provider",
)
RATES = ("input", "output", "cache_read", "cache_write", "reasoning")
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
EPOCH = (1980, 1, 1, 0, 0, 0)


def read(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    return json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)


def slim_model(model: dict[str, Any]) -> dict[str, Any]:
    kept = {name: model[name] for name in MODEL_FIELDS if name in model}
    if "cost" in kept:
        kept["cost"] = slim_cost(kept["cost"])
    if "provider" in kept:
        kept["provider"] = {name: kept["provider"][name] for name in ("npm", "api") if name in kept["provider"]}
    return {name: value for name, value in kept.items() if value not in ({}, "")}


def slim_cost(cost: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {name: cost[name] for name in RATES if name in cost}
    if "tiers" in cost:
        kept["tiers"] = [{**slim_cost(tier), "tier": tier["tier"]} for tier in cost["tiers"]]
    if "context_over_200k" in cost:
        kept["context_over_200k"] = slim_cost(cost["context_over_200k"])
    return kept


def members(catalogue: dict[str, Any], day: str) -> dict[str, Any]:
    index: dict[str, Any] = {"date": day, "origin": ORIGIN, "providers": {}}
    result: dict[str, Any] = {"index.json": index}
    for provider_id, provider in catalogue.items():
        if not PLAIN_NAME.fullmatch(provider_id):
            raise SystemExit(f"{provider_id!r} cannot be the name of a member")
        models = {model_id: slim_model(model) for model_id, model in provider["models"].items()}
        index["providers"][provider_id] = {name: provider[name] for name in PROVIDER_FIELDS if name in provider}
        result[f"providers/{provider_id}.json"] = models
    return result


def retired(catalogue: dict[str, Any], earlier: list[dict[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for provider_id, provider in catalogue.items():
        models: dict[str, Any] = {}
        for copy in earlier:
            for model_id, model in copy.get(provider_id, {"models": {}})["models"].items():
                if model_id not in provider["models"] and model_id not in models and model.get("cost"):
                    models[model_id] = slim_model(model) | {"status": "deprecated"}
        if models:
            result[f"retired/{provider_id}.json"] = models
    return result


def write(path: Path, documents: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, document in documents.items():
            text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
            archive.writestr(zipfile.ZipInfo(name, EPOCH), text, zipfile.ZIP_DEFLATED, 9)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Build the bundled catalogue of models.")
    parser.add_argument("source", type=Path, help="a copy of models.dev's api.json, or of it gzipped")
    parser.add_argument("--date", type=date.fromisoformat, required=True, help="the day the copy was made")
    parser.add_argument("--earlier", type=Path, nargs="*", default=[], help="older copies, the newest first")
    parser.add_argument("--output", type=Path, default=TARGET)
    options = parser.parse_args(arguments)
    catalogue = read(options.source)
    documents = members(catalogue, options.date.isoformat())
    old = retired(catalogue, [read(path) for path in options.earlier])
    write(options.output, documents | old)
    models = sum(len(document) for name, document in documents.items() if name != "index.json")
    size = options.output.stat().st_size
    print(f"{options.output}: {models:,} models of {len(documents) - 1} providers, {size:,} bytes")
    print(f"{sum(map(len, old.values())):,} retired models of {len(old)} providers")


if __name__ == "__main__":
    main(sys.argv[1:])
