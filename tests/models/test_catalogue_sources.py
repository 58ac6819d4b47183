from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from opensesh.errors import ModelConnectionError, ModelError, ModelNotFoundError, WriteError
from opensesh.models import catalogue_sources
from opensesh.models.catalogue import Catalogue
from opensesh.models.catalogue_sources import BundledSource, refresh_copy, refreshed_copy
from opensesh.models.model import Limit, Price, Rates, Tier
from opensesh.storage.protocol import Damage

ROOT = Path(__file__).parents[2]
SNAPSHOT_DAY = "2026-09-28"
COMPATIBLE = "@ai-sdk/openai-compatible"

API: dict[str, Any] = {"acme": {"name": "Acme", "env": [], "npm": "x", "models": {"m": {}}}}
NEWER: dict[str, Any] = {**API, "other": API["acme"]}
LONG_AGO = 1_000_000_000


def api(*models: str, **fields: Any) -> dict[str, Any]:
    """A catalogue of one provider, ``acme``, in the shape of models.dev's ``api.json``."""
    listed = {name: {"id": name, "name": name, **fields} for name in models}
    return {"acme": {"id": "acme", "name": "Acme", "env": ["ACME_API_KEY"], "npm": COMPATIBLE, "models": listed}}


def written(path: Path, document: Any, day: str = "2026-10-15") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    moment = datetime.fromisoformat(f"{day}T12:00:00+00:00").timestamp()
    os.utime(path, (moment, moment))
    return path


class Site:
    """Replaces models.dev: sends a prepared response and records the requests."""

    def __init__(self, document: Any = None, etag: str = '"v1"', status: int = 200) -> None:
        self.document = API if document is None else document
        self.etag = etag
        self.status = status
        self.requests: list[httpx2.Request] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        if self.etag and request.headers.get("if-none-match") == self.etag:
            return httpx2.Response(304)
        text = self.document if isinstance(self.document, str) else json.dumps(self.document)
        return httpx2.Response(self.status, content=text.encode(), headers={"etag": self.etag} if self.etag else {})


def client(site: Callable[[httpx2.Request], httpx2.Response]) -> httpx2.Client:
    return httpx2.Client(transport=httpx2.MockTransport(site))


def copy() -> Path:
    return Path(refreshed_copy())


def test_what_is_fetched_is_kept_and_used() -> None:
    site = Site()
    catalogue = Catalogue(environ={})
    assert "acme" not in [info.id for info in catalogue.providers()]
    assert catalogue.refresh(client(site)) is True
    assert list(catalogue.models("acme")) == ["m"]
    assert catalogue.origin.label == "the copy last fetched"
    assert [str(request.url) for request in site.requests] == ["https://models.dev/api.json"]


def test_the_same_catalogue_is_not_fetched_twice_but_known_to_be_fresh() -> None:
    site = Site()
    assert refresh_copy({}, client(site)) is True
    os.utime(copy(), (LONG_AGO, LONG_AGO))
    assert refresh_copy({}, client(site)) is False
    assert site.requests[1].headers["if-none-match"] == '"v1"'
    assert copy().stat().st_mtime > LONG_AGO


def test_a_new_catalogue_replaces_the_old() -> None:
    refresh_copy({}, client(Site()))
    assert refresh_copy({}, client(Site(NEWER, '"v2"'))) is True
    assert json.loads(copy().read_bytes()) == NEWER
    assert refresh_copy({}, client(Site(NEWER, '"v2"'))) is False


def test_without_an_etag_the_catalogue_is_fetched_in_full() -> None:
    site = Site(etag="")
    assert [refresh_copy({}, client(site)) for _ in range(2)] == [True, False]
    assert all("if-none-match" not in request.headers for request in site.requests)


def test_an_old_etag_does_not_outlive_its_catalogue() -> None:
    refresh_copy({}, client(Site()))
    refresh_copy({}, client(Site(NEWER, etag="")))
    site = Site()
    refresh_copy({}, client(site))
    assert "if-none-match" not in site.requests[0].headers


def test_a_damaged_copy_is_fetched_anew_though_the_site_has_nothing_newer() -> None:
    refresh_copy({}, client(Site()))
    copy().write_text("{")
    assert refresh_copy({}, client(Site())) is True
    assert json.loads(copy().read_bytes()) == API


def test_another_site_can_be_named() -> None:
    site = Site()
    refresh_copy({"OPENCODE_MODELS_URL": "https://mirror.example/"}, client(site))
    assert str(site.requests[0].url) == "https://mirror.example/api.json"


def test_redirects_are_followed() -> None:
    site = Site()

    def moved(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/api.json":
            return httpx2.Response(302, headers={"location": "/v2/api.json"})
        return site(request)

    assert refresh_copy({}, client(moved)) is True


@pytest.mark.parametrize("text", ["", "<html>", "[]", "{}", '{"acme":'])
def test_a_response_without_a_catalogue_keeps_the_old_one(text: str) -> None:
    refresh_copy({}, client(Site()))
    with pytest.raises(ModelError, match="did not send a catalogue"):
        refresh_copy({}, client(Site(text, '"v2"')))
    assert json.loads(copy().read_bytes()) == API


@pytest.mark.parametrize("status", [403, 404, 500, 503])
def test_an_error_status_keeps_the_old_catalogue(status: int) -> None:
    refresh_copy({}, client(Site()))
    with pytest.raises(ModelError, match=str(status)) as caught:
        refresh_copy({}, client(Site(etag='"v2"', status=status)))
    assert caught.value.status == status
    assert json.loads(copy().read_bytes()) == API


def test_without_a_connection_the_old_catalogue_stays_usable() -> None:
    def refuse(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("no route to host", request=request)

    catalogue = Catalogue(environ={})
    with pytest.raises(ModelConnectionError, match=r"models\.dev.*no route to host"):
        catalogue.refresh(client(refuse))
    assert catalogue.find("anthropic/claude-haiku-4-5")
    assert not copy().exists()


def test_a_client_that_is_passed_in_stays_open() -> None:
    site = Site()
    with client(site) as session:
        refresh_copy({}, session)
        assert not session.is_closed


def test_a_cache_that_cannot_be_written_is_an_error(isolated: Path) -> None:
    (isolated / ".cache").write_text("a file where a folder should be")
    with pytest.raises(WriteError):
        refresh_copy({}, client(Site()))


def test_a_client_of_our_own_reaches_a_server_that_is_not_there() -> None:
    with pytest.raises(ModelConnectionError):
        refresh_copy({"OPENCODE_MODELS_URL": "http://127.0.0.1:9"})


@pytest.mark.parametrize("variable", ["OPENCODE_MODELS_PATH", "OPENSESH_MODELS_PATH"])
def test_a_named_file_comes_before_everything(tmp_path: Path, isolated: Path, variable: str) -> None:
    written(isolated / ".cache" / "opencode" / "models.json", api("cached"))
    named = written(tmp_path / "mine.json", api("named"), day="2020-01-01")
    catalogue = Catalogue(environ={variable: str(named)})
    assert list(catalogue.models("acme")) == ["named"]
    assert (catalogue.origin.label, catalogue.origin.date) == (f"the copy {variable} names", "2020-01-01")


@pytest.mark.parametrize(
    ("theirs", "ours", "expected"),
    [
        (None, None, "the snapshot that comes with opensesh"),
        ("2026-10-15", None, "OpenCode's cached copy"),
        (None, "2026-10-15", "the copy last fetched"),
        ("2026-10-15", "2026-10-14", "OpenCode's cached copy"),
        ("2026-10-14", "2026-10-15", "the copy last fetched"),
        ("2026-01-01", "2026-01-02", "the snapshot that comes with opensesh"),
        (SNAPSHOT_DAY, None, "the snapshot that comes with opensesh"),
    ],
)
def test_the_newest_copy_is_used(isolated: Path, theirs: str | None, ours: str | None, expected: str) -> None:
    if theirs:
        written(isolated / ".cache" / "opencode" / "models.json", api("theirs"), theirs)
    if ours:
        written(isolated / ".cache" / "opensesh" / "models.json", api("ours"), ours)
    assert Catalogue(environ={}).origin.label == expected


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null", '{"acme": {"models"', "\0" * 9, "<html>"])
def test_a_damaged_copy_is_reported_and_the_next_one_used(isolated: Path, text: str) -> None:
    theirs = written(isolated / ".cache" / "opencode" / "models.json", text, "2026-10-20")
    written(isolated / ".cache" / "opensesh" / "models.json", api("ours"), "2026-10-15")
    reports: list[Damage] = []
    catalogue = Catalogue(environ={}, report=reports.append)
    assert list(catalogue.models("acme")) == ["ours"]
    assert [report.path for report in reports] == [str(theirs)]
    assert reports[0].reason


def test_a_named_file_that_is_missing_is_reported_and_the_snapshot_used(tmp_path: Path) -> None:
    reports: list[Damage] = []
    missing = tmp_path / "none.json"
    catalogue = Catalogue(environ={"OPENCODE_MODELS_PATH": str(missing)}, report=reports.append)
    assert catalogue.origin.date == SNAPSHOT_DAY
    assert [report.path for report in reports] == [str(missing)]


def test_a_damaged_provider_or_model_costs_nothing_else(tmp_path: Path) -> None:
    document = api("good", "bad")
    document["acme"]["models"]["bad"]["limit"] = "much"
    document["broken"] = {"id": "broken", "models": 3}
    document["odd"] = 7
    path = written(tmp_path / "m.json", document)
    reports: list[Damage] = []
    catalogue = Catalogue(environ={"OPENCODE_MODELS_PATH": str(path)}, report=reports.append)
    assert list(catalogue.models("acme")) == ["good"]
    with pytest.raises(ModelNotFoundError, match="limit"):
        catalogue.find("acme/bad")
    assert catalogue.models("broken") == {}
    assert "odd" not in [info.id for info in catalogue.providers()]
    assert sorted(report.reason.partition(":")[0] for report in reports if report.path == str(path)) == [
        "provider broken",
        "provider odd",
    ]
    assert [report.path for report in reports if report.path != str(path)] == ["provider acme/bad"]


def test_a_damaged_copy_is_logged_without_a_report_callback(isolated: Path, caplog: pytest.LogCaptureFixture) -> None:
    written(isolated / ".cache" / "opencode" / "models.json", "{")
    assert Catalogue(environ={}).origin.date == SNAPSHOT_DAY
    assert "models.json" in caplog.text


def test_making_a_catalogue_reads_nothing(tmp_path: Path) -> None:
    path = tmp_path / "later.json"
    catalogue = Catalogue(environ={"OPENCODE_MODELS_PATH": str(path)})
    written(path, api("late"))
    assert list(catalogue.models("acme")) == ["late"]


def test_the_script_that_builds_the_snapshot_drops_prose_and_keeps_facts(tmp_path: Path) -> None:
    cost = {
        "input": 1,
        "output": 2,
        "input_audio": 5,
        "tiers": [{"input": 3, "output": 4, "tier": {"type": "context", "size": 32_000}}],
        "context_over_200k": {"input": 5, "output": 6},
    }
    document = api("m", description="long words", knowledge="2025-01", cost=cost, limit={"context": 9, "input": 8})
    source = written(tmp_path / "api.json", document)
    bundles = [tmp_path / "one.zip", tmp_path / "two.zip"]
    for bundle in bundles:
        command = [sys.executable, str(ROOT / "scripts" / "build_catalogue.py"), str(source)]
        subprocess.run([*command, "--date", "2026-11-01", "--output", str(bundle)], check=True, capture_output=True)
    assert bundles[0].read_bytes() == bundles[1].read_bytes()
    built = BundledSource(str(bundles[0]))
    assert built.date == "2026-11-01"
    assert b"long words" not in bytes(built.models("acme")["m"])
    model = Catalogue(environ={}, source=built).find("acme/m")
    assert model.limit == Limit(context=9, input=8)
    assert model.price == Price(
        rates=Rates(input=1.0, output=2.0), tiers=(Tier(above=32_000, rates=Rates(input=3.0, output=4.0)),)
    )


def test_the_script_keeps_priced_models_that_only_earlier_catalogues_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = written(tmp_path / "api.json", api("new"))
    older = [
        written(tmp_path / "older.json", api("old", cost={"input": 2, "output": 3})),
        written(tmp_path / "oldest.json", api("old", cost={"input": 9, "output": 9})),
    ]
    bundle = tmp_path / "bundle.zip"
    command = [sys.executable, str(ROOT / "scripts" / "build_catalogue.py"), str(source), "--earlier", *map(str, older)]
    subprocess.run([*command, "--date", "2026-11-01", "--output", str(bundle)], check=True, capture_output=True)
    monkeypatch.setattr(catalogue_sources, "BUNDLE_PATH", str(bundle))
    catalogue = Catalogue(environ={}, source=BundledSource(str(bundle)))
    assert list(catalogue.models("acme")) == ["new"]
    old = catalogue.find("acme/old")
    assert (old.status, old.price) == ("deprecated", Price(rates=Rates(input=2.0, output=3.0)))
