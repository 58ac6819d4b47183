from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..cli.running import Terminal


def test_promise_1_an_export_has_no_key_of_the_logins_the_configuration_or_the_environment(
    terminal: Terminal, isolated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    login, variable, configured = "KEYINAUTHJSON12345678", "acmekeyvalue1234567890", "configuredkey987654321"
    data = isolated / ".local" / "share" / "opencode"
    data.mkdir(parents=True)
    data.joinpath("auth.json").write_text(json.dumps({"p": {"type": "api", "key": login}}))
    Path("opencode.json").write_text(json.dumps({"provider": {"x": {"options": {"apiKey": configured}}}}))
    monkeypatch.setenv("ACME_API_KEY", variable)
    terminal.run("run", "--quiet", "-m", "scripted/prompt", f"SAY {login} {variable} {configured}")
    for format_name in ("prompts", "jsonl", "json", "opencode", "markdown", "html", "hf"):
        raw = terminal.run("export", "last", "--format", format_name)
        assert all(secret in raw for secret in (login, variable, configured))
        redacted = terminal.run("export", "last", "--format", format_name, "--redact")
        assert not any(secret in redacted for secret in (login, variable, configured))
        assert "known-secret" in terminal.error
