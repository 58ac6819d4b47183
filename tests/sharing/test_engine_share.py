from __future__ import annotations

import json
from pathlib import Path

import pytest

from opensesh.engine.opening import open_engine
from opensesh.errors import NotFoundError, UsageError
from opensesh.sharing.client import ShareServer
from opensesh.storage import keys
from opensesh.storage.json_tree.store import JsonTree
from opensesh.testing.scripted import ScriptedModel

from .faulty_server import FaultyServer

KEY = "sk-ant-api03-" + "a1B2c3D4" * 6


def configure(folder: Path, **settings: object) -> Path:
    folder.mkdir()
    (folder / "opencode.json").write_text(json.dumps(settings))
    return folder


async def shared_texts(faulty_server: FaultyServer, url: str) -> list[str]:
    async with ShareServer(faulty_server.url) as server:
        items = await server.data(url.rsplit("/", 1)[1])
    return [item.data["text"] for item in items if item.type == "part" and item.data["type"] == "text"]


@pytest.mark.parametrize("redact", [None, True, False])
async def test_an_engine_shares_a_session_updates_the_share_and_takes_it_down(
    faulty_server: FaultyServer, tmp_path: Path, redact: bool | None
) -> None:
    project = configure(tmp_path / "project", enterprise={"url": faulty_server.url})
    model = ScriptedModel(f"SAY The key is {KEY}.\n---\nSAY Again.")
    async with open_engine(project, store=JsonTree(str(tmp_path / "store")), scripts={"it": model}) as engine:
        session = await engine.create(title="Shared")
        await engine.run(session.id, "Say the key.", model="scripted/it")

        shared = await engine.share(session.id, redact=redact)

        assert shared.is_new
        assert not shared.behind
        assert engine.sessions.get(session.id).document["share"] == {"url": shared.url}
        texts = await shared_texts(faulty_server, shared.url)
        assert texts[0] == "Say the key."
        assert texts[1].startswith("The key is ")
        assert (KEY in texts[1]) == (redact is False)

        await engine.run(session.id, "Once more.", model="scripted/it")
        updated = await engine.share(session.id)
        assert not updated.is_new
        assert updated.url == shared.url
        assert (await shared_texts(faulty_server, shared.url))[2:] == ["Once more.", "Again."]

        assert (await engine.unshare(session.id)).url == shared.url
        assert "share" not in engine.sessions.get(session.id).document
        with pytest.raises(NotFoundError):
            engine.sessions.store.read(keys.share(session.id))
        with pytest.raises(NotFoundError):
            await engine.unshare(session.id)


async def test_an_engine_shares_nothing_where_the_configuration_disables_it(
    faulty_server: FaultyServer, tmp_path: Path
) -> None:
    project = configure(tmp_path / "project", enterprise={"url": faulty_server.url}, share="disabled")
    async with open_engine(project, store=JsonTree(str(tmp_path / "store"))) as engine:
        session = await engine.create(title="Private")
        with pytest.raises(UsageError, match="sharing is disabled"):
            await engine.share(session.id)
    assert faulty_server.requests == []
