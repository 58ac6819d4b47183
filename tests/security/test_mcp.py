from __future__ import annotations

import pytest

from opensesh.config import McpConfig
from opensesh.models.auth import model_key_variables

pytest.importorskip("mcp")

from opensesh.tools.mcp import transports


def test_l6_a_server_does_not_inherit_the_keys_of_model_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GITHUB_TOKEN", "AWS_ACCESS_KEY_ID", "TAVILY_API_KEY"):
        monkeypatch.setenv(name, "value")
    monkeypatch.setenv("OPENCODE_SERVER_PASSWORD", "secret")
    inherited = transports.environment_for(McpConfig(command=["x"]), {})
    assert "OPENCODE_SERVER_PASSWORD" not in inherited
    assert "ANTHROPIC_API_KEY" not in inherited
    assert "OPENAI_API_KEY" not in inherited
    assert {"GITHUB_TOKEN", "AWS_ACCESS_KEY_ID", "TAVILY_API_KEY", "PATH"} <= set(inherited)


def test_l6_the_configuration_passes_a_key_on() -> None:
    config = McpConfig(type="local", command=["x"], environment={"OPENAI_API_KEY": "given"})
    environment = transports.environment_for(config, {})
    assert environment["OPENAI_API_KEY"] == "given"


def test_l6_the_variables_are_those_of_the_known_providers() -> None:
    names = model_key_variables()
    assert {"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "GROQ_API_KEY"} <= names
    assert not {"GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "GOOGLE_APPLICATION_CREDENTIALS"} & names
