from __future__ import annotations

import base64
from pathlib import Path

import pytest

from opensesh.records import dumps
from opensesh.storage import paths

from ..history.sample_tree import Json, Sample
from .serving import serving

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


def url_of(content: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


@pytest.fixture
def sample() -> Sample:
    root = Path(paths.data()) / "storage"
    root.mkdir(parents=True)
    return Sample(root)


def file_part(sample: Sample, message: Json, content: bytes, name: str) -> str:
    part = sample.part(message, type="file", mime="image/png", filename=name, url=url_of(content))
    return part["id"]


async def test_turns_are_read_by_position_or_around_a_message(tmp_path: Path, sample: Sample) -> None:
    session = sample.talk(answers=120)
    infos = sample.messages(session)
    async with serving(tmp_path / "p") as client:
        address = f"/history/sessions/{session['id']}/turns"
        newest = await client.get(f"{address}?limit=10")
        assert (newest["from"], newest["total"], len(newest["items"])) == (230, 240, 10)
        assert newest["items"][-1]["blocks"][1]["text"] == "Answer 119"
        assert newest["items"][-1]["blocks"][1]["id"].startswith("prt_")
        first = await client.get(f"{address}?from=0&limit=2")
        assert [item["id"] for item in first["items"]] == [info["id"] for info in infos[:2]]
        around = await client.get(f"{address}?around={infos[100]['id']}&limit=20")
        assert (around["from"], around["items"][10]["id"]) == (90, infos[100]["id"])
        assert (await client.http.get(f"{address}?around=msg_nothing")).status_code == 404
        assert (await client.http.get(f"{address}?limit=101")).status_code == 400
        outline = await client.get(f"/history/sessions/{session['id']}/outline")
        assert len(outline["turns"]) == 240
        assert outline["turns"][0][-1] == "Question 0"


async def test_a_damaged_message_is_an_item_of_its_own(tmp_path: Path, sample: Sample) -> None:
    session = sample.talk(answers=2)
    (sample.root / "message" / session["id"] / f"{sample.messages(session)[1]['id']}.json").write_text("{")
    async with serving(tmp_path / "p") as client:
        turns = await client.get(f"/history/sessions/{session['id']}/turns")
        assert [sorted(item)[0] for item in turns["items"]].count("damage") == 1
        assert turns["items"][1]["damage"]["path"].endswith(".json")


async def test_parts_are_whole_and_outputs_are_sent_when_asked_for(tmp_path: Path, sample: Sample) -> None:
    session = sample.talk(answers=1)
    part = sample.tool(sample.messages(session)[1], output="long output")
    async with serving(tmp_path / "p") as client:
        assert await client.get(f"/history/sessions/{session['id']}/parts/{part['id']}") == part
        address = f"/history/sessions/{session['id']}/turns"
        assert "long output" not in dumps(await client.get(address)).decode()
        assert "long output" in dumps(await client.get(f"{address}?outputs=true")).decode()


async def test_a_file_is_a_picture_by_its_first_bytes_and_else_a_download(tmp_path: Path, sample: Sample) -> None:
    session = sample.session()
    prompt = sample.prompt(session)
    picture = file_part(sample, prompt, PNG, "a.png")
    lie = file_part(sample, prompt, b"<svg onload=alert(1)>", "../b\r\n\u202e\"'.png")
    elsewhere = sample.part(prompt, type="file", mime="text/plain", filename="x", url="file:///etc/passwd")["id"]
    call = sample.tool(sample.answer(session), attachments=[{"mime": "text/html", "url": url_of(b"<b>", "text/html")}])
    async with serving(tmp_path / "p") as client:
        address = f"/history/sessions/{session['id']}/parts"
        response = await client.http.get(f"{address}/{picture}/file")
        assert (response.headers["content-type"], response.content) == ("image/png", PNG)
        assert response.headers["content-security-policy"] == "sandbox; default-src 'none'"
        response = await client.http.get(f"{address}/{lie}/file")
        assert response.headers["content-type"] == "application/octet-stream"
        assert response.headers["content-disposition"] == "attachment; filename*=UTF-8''b_____.png"
        response = await client.http.get(f"{address}/{call['id']}/file?attachment=0")
        assert response.headers["content-disposition"] == "attachment; filename*=UTF-8''file"
        for missing in (f"{elsewhere}/file", f"{call['id']}/file", f"{call['id']}/file?attachment=1", "prt_x/file"):
            assert (await client.http.get(f"{address}/{missing}")).status_code == 404


async def test_changes_are_diffs_of_the_session_or_of_a_prompt(tmp_path: Path, sample: Sample) -> None:
    session = sample.session()
    prompt = sample.prompt(session)
    diff = "--- a\n+++ a\n@@ -1,1 +1,1 @@\n-old\n+new\n"
    sample.tool(sample.answer(session), "edit", input={"filePath": "a"}, metadata={"diff": diff})
    later = sample.prompt(session)
    async with serving(tmp_path / "p") as client:
        address = f"/history/sessions/{session['id']}/changes"
        whole = await client.get(address)
        assert [(file["path"], file["additions"]) for file in whole["files"]] == [("a", 1)]
        assert await client.get(f"{address}?prompt={prompt['id']}") == whole
        assert (await client.get(f"{address}?prompt={later['id']}"))["total"] == 0
        assert (await client.http.get(f"{address}?prompt=msg_x")).status_code == 404
