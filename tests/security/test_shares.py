"""Records of shares that come with another person's store: nothing may be sent to the addresses in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from opensesh.errors import UsageError
from opensesh.history.import_export.import_sources import read_sessions
from opensesh.history.import_export.importing import Importer
from opensesh.sharing.client import ShareServer
from opensesh.sharing.share_service import ShareService
from opensesh.sharing.share_settings import ShareSettings
from opensesh.sharing.share_sync import ShareSync
from opensesh.storage import keys
from opensesh.storage.json_tree.store import JsonTree
from opensesh.storage.protocol import read_or_none

from ..sharing.conftest import faulty_server, publishing
from ..sharing.faulty_server import FaultyServer, PublishingSetup

__all__ = ["faulty_server", "publishing"]


async def shared_by_another(publishing: PublishingSetup, faulty_server: FaultyServer) -> str:
    """Return a session with the record of a share that was not made here."""
    session = str(publishing.sample.talk()["id"])
    async with ShareServer(faulty_server.url) as server:
        share = await server.create(session)
    publishing.sample.write(("session_share", session), share.document)
    faulty_server.requests.clear()
    return session


async def test_what_happens_in_a_session_of_another_person_is_not_sent_to_the_share_that_it_names(
    publishing: PublishingSetup, faulty_server: FaultyServer
) -> None:
    session = await shared_by_another(publishing, faulty_server)
    async with publishing.service() as service:
        async with ShareSync(service, publishing.bus):
            publishing.sessions.update(session, lambda info: info.update(title="private"))
        assert faulty_server.requests == []
        with pytest.raises(UsageError, match="was not made here"):
            await service.share(session)
        assert faulty_server.requests == []
        await service.unshare(session)
        assert (await service.share(session)).is_new


async def test_a_share_of_the_user_s_own_data_is_sent_only_to_servers_of_the_user(
    tmp_path: Path, faulty_server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    publishing = PublishingSetup(tmp_path / "opencode" / "storage", faulty_server.url)
    session = await shared_by_another(publishing, faulty_server)
    elsewhere = ShareSettings(server="http://127.0.0.1:9", chosen_by_user=True)
    by_project = ShareSettings(server=faulty_server.url, chosen_by_user=False)
    for settings in (elsewhere, by_project):
        async with ShareService(publishing.sessions, settings) as service:
            assert service.find(session) is None
    assert faulty_server.requests == []
    async with publishing.service() as service:
        assert not (await service.share(session)).is_new


def test_an_import_from_another_person_brings_no_share(
    tmp_path: Path, publishing: PublishingSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample, here = publishing.sample, JsonTree(tmp_path / "here")
    session = sample.talk(share={"url": "http://127.0.0.1:9/share/theirs"})
    share = {"id": "theirs", "secret": "x", "url": "http://127.0.0.1:9/share/theirs"}
    sample.write(("session_share", session["id"]), share)
    Importer(here).take(read_sessions(str(sample.root)))
    own = {"id": "own", "secret": "x", "url": "http://127.0.0.1:9/share/own"}
    assert read_or_none(here, keys.share(session["id"])) is None
    assert "share" not in here.read(keys.session("proj", session["id"]))
    # Of the user's own data, the share comes along, but not in place of another.
    monkeypatch.setenv("XDG_DATA_HOME", str(sample.root.parent))
    (sample.root.parent / "opencode").mkdir()
    sample.root.rename(sample.root.parent / "opencode" / "storage")
    Importer(here).take(read_sessions(str(sample.root.parent / "opencode" / "storage")))
    assert here.read(keys.share(session["id"])) == share
    here.write(keys.share(session["id"]), own)
    Importer(here).take(read_sessions(str(sample.root.parent / "opencode" / "storage")))
    assert here.read(keys.share(session["id"])) == own
