from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from opensesh.config import Config, load
from opensesh.config.config import Origin
from opensesh.config.trust import owner_of
from opensesh.models.provider_trust import provider_trust_items as models
from opensesh.sharing.share_settings import load_share_settings
from opensesh.tools.mcp.server_trust import servers_needing_trust as servers


@pytest.fixture
def organised(isolated: Path) -> Config:
    published = {
        "provider": {"corp": {"options": {"baseURL": "https://models.example"}}},
        "mcp": {"box": {"command": ["program"]}},
        "enterprise": {"url": "https://share.example"},
    }

    def fetch(url: str, *, timeout: float) -> bytes:
        assert url == "https://corp.example/.well-known/opencode"
        return json.dumps({"config": published}).encode()

    data = isolated / ".local" / "share" / "opencode"
    data.mkdir(parents=True)
    login = {"type": "wellknown", "key": "TOKEN", "token": "sesame"}
    (data / "auth.json").write_text(json.dumps({"https://corp.example": login}))
    return load(os.getcwd(), os.getcwd(), fetch=fetch)


def test_an_organisation_names_addresses_and_no_programs(organised: Config) -> None:
    assert owner_of(organised.origin("provider.corp.options.baseURL"), organised) == "organisation"
    assert models(organised) == []
    assert load_share_settings(organised).chosen_by_user
    assert [server.name for server in servers(organised)] == ["box"]


def test_what_no_text_says_is_the_programs(organised: Config) -> None:
    assert owner_of(None, organised) == "program"
    assert owner_of(Origin("the plugin x"), organised) == "program"
    assert owner_of(Origin("OPENCODE_CONFIG_CONTENT"), organised) == "user"


def test_a_markdown_file_is_whose_its_folder_is_and_any_other_file_lies_in_it(isolated: Path) -> None:
    own = isolated / ".config" / "opencode"
    (own / "agents" / "below").mkdir(parents=True)
    (own / "clone").mkdir()
    config = load(own / "clone", own / "clone")
    assert owner_of(Origin(str(own / "agents" / "below" / "it.md"), 1), config) == "user"
    assert owner_of(Origin(str(own / "clone" / "opencode.json"), 1), config) == "project"
