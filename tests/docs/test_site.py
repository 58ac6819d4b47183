from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import opensesh
from opensesh.bus import Envelope
from opensesh.history.stats.usage_stats import Statistics
from tests.browser import Browser, needs_browser

pytestmark = pytest.mark.timeout(600)  # building the site takes minutes on a busy machine
ROOT = Path(__file__).parents[2]
_LOADED = re.compile(
    r"""<(?:script|img|source|iframe)\b[^>]*\bsrc=["']?(https?:)?//|<link\b[^>]*\bhref=["']?https?://"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environ = os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(words, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    output = [line for line in (done.stdout + done.stderr).splitlines() if line and not line.startswith("INFO ")]
    assert (done.returncode, output) == (0, [])
    return folder


def test_every_page_is_built_and_can_be_reached_from_the_first(site: Path) -> None:
    first = (site / "index.html").read_text("utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        path = page.relative_to(ROOT / "docs").with_suffix("")
        path = path.parent if path.name == "index" else path
        assert (site / path / "index.html").exists(), path
        assert f'href="{path.as_posix()}/"' in first or path == Path(), path


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not _LOADED.search(page.read_text("utf-8")), page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"@import|url\(['\"]?(?:https?:)?//", sheet.read_text("utf-8")), sheet


def test_the_reference_has_the_public_names(site: Path) -> None:
    pages = "".join(path.read_text("utf-8") for path in (site / "reference" / "python").rglob("*.html"))
    for name in ("opensesh.open", "opensesh.Engine", "opensesh.Engine.prompt", "opensesh.Outcome", "opensesh.tool",
                 "opensesh.history.open", "opensesh.sessions.Sessions.fork", "opensesh.storage.protocol.Store.update",
                 "opensesh.errors.BusyError", "opensesh.events.PartUpdated",
        "opensesh.testing.conformance.store_conformance"):  # fmt: skip
        assert f'id="{name}"' in pages, name
    assert not re.search(r":(?:class|func|meth|mod):", pages)


def test_the_reference_has_every_field_also_those_without_a_text(site: Path) -> None:
    page = (site / "reference" / "python" / "engine" / "index.html").read_text("utf-8")
    fields = {"Outcome": opensesh.Outcome._fields, "Budget": opensesh.Budget.__struct_fields__}
    for name, own in {**fields, "Prompt": opensesh.Prompt.__struct_fields__, "bus.Envelope": Envelope._fields}.items():
        assert [field for field in own if f'id="opensesh.{name}.{field}"' not in page] == []
    history = (site / "reference" / "python" / "history" / "index.html").read_text("utf-8")
    statistics = "opensesh.history.stats.usage_stats.Statistics"
    assert [field for field in Statistics._fields if f'id="{statistics}.{field}"' not in history] == []


@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_it_is_shown_by_a_real_browser_without_a_complaint(site: Path, *, dark: bool) -> None:
    browser = Browser()
    try:
        browser.look(dark=dark)
        for page in ("quick-start", "reference/commands", "reference/python/engine"):
            browser.open(site / page / "index.html")
            browser.until("document.querySelector('h1') !== null")
            assert all(url.startswith(("file:", "data:", "about:", "blob:")) for url in browser.requests)
            assert browser.ask("document.documentElement.scrollWidth") <= 1200
        ground = browser.ask("getComputedStyle(document.body).backgroundColor")
        assert (ground != "rgb(255, 255, 255)") is dark
    finally:
        browser.close()
