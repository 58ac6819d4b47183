from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from .serving import SCRIPTED, Client, listening, make_project, serving


async def test_a_prompt_is_answered_stored_and_seen_by_every_listener(tmp_path: Path) -> None:
    async with serving(make_project(tmp_path / "p")) as client, listening(client) as first, listening(client) as second:
        session_id = await client.create(title="One")
        answer = await client.prompt(session_id, "SAY Hello there, you two.")
        texts = [part["text"] for part in answer["parts"] if part["type"] == "text"]
        assert texts == ["Hello there, you two."]
        messages = await client.get(f"/session/{session_id}/message")
        assert [message["info"]["role"] for message in messages] == ["user", "assistant"]
        assert messages[1] == answer
        for events in (first, second):
            await events.wait_for("session.idle", sessionID=session_id)
        assert first.types() == second.types()


async def test_every_update_of_a_streaming_text_is_the_one_before_and_its_delta(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client, listening(client) as events:
        session_id = await client.create(title="One")
        await client.prompt(session_id, "SAY one two three four five six seven eight nine ten")
        await events.wait_for("session.idle", sessionID=session_id)
        text = ""
        for event in events.seen:
            if event["type"] != "message.part.updated" or event["properties"]["part"].get("type") != "text":
                continue
            part, delta = event["properties"]["part"], event["properties"].get("delta")
            if delta is not None:
                assert part["text"] == text + delta
                text = part["text"]
        assert text.rstrip() == "one two three four five six seven eight nine ten"


async def test_a_stream_resumes_after_the_last_event_without_loss_or_repetition(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        async with listening(client, "/event?ids=true") as events:
            session_id = await client.create(title="One")
            await events.wait_for("session.updated")
            last = events.ids[-1]
        await client.http.patch(f"/session/{session_id}", json={"title": "Two"})
        await client.http.patch(f"/session/{session_id}", json={"title": "Three"})
        async with listening(client, last_event_id=last) as events:
            await client.http.patch(f"/session/{session_id}", json={"title": "Four"})
            async with asyncio.timeout(60):
                while len(events.seen) < 4:
                    await asyncio.sleep(0.01)
        titles = [event["properties"]["info"]["title"] for event in events.seen[1:]]
        assert titles == ["Two", "Three", "Four"]


async def test_a_client_that_missed_too_much_must_read_everything_again(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client, listening(client, last_event_id="0123abcd.7") as events:
        assert events.types() == ["server.connected", "server.instance.disposed"]


async def test_directories_do_not_see_each_others_events(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        other = Client(client.url, tmp_path / "other")
        other.directory.mkdir()
        async with listening(client) as here, listening(other) as there, listening(client, "/global/event") as all_of:
            await other.create(title="There")
            await there.wait_for("session.created")
            await client.create(title="Here")
            created = await here.wait_for("session.created")
            await all_of.wait_for("session.created", info=created["properties"]["info"])
        assert [event["properties"]["info"]["title"] for event in here.seen if event["type"] == "session.created"] == [
            "Here"
        ]
        assert all_of.types().count("session.created") == 2
        await other.http.aclose()


async def test_disposing_ends_the_streams_of_a_directory_and_the_next_request_opens_it_again(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client, listening(client) as events:
        session_id = await client.create(title="One")
        assert await client.post("/instance/dispose") is True
        await events.wait_until_ended()
        assert events.types()[-1] == "server.instance.disposed"
        assert (await client.get(f"/session/{session_id}"))["title"] == "One"


async def test_a_removed_session_is_in_the_trash(tmp_path: Path) -> None:
    from opensesh.sessions import trash

    async with serving(tmp_path / "p") as client, listening(client) as events:
        session_id = await client.create(title="One")
        assert (await client.http.delete(f"/session/{session_id}")).json() is True
        await events.wait_for("session.deleted")
        assert (await client.http.get(f"/session/{session_id}")).status_code == 404
        assert any(session_id in item.titles for item in trash.contents())


async def test_a_session_that_is_removed_while_it_runs_becomes_idle_once(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    async with serving(project) as client, listening(client) as events:
        session_id = await client.create(title="One")
        call = 'CALL bash {"command": "touch started; sleep 600", "description": "wait"}'
        body = {"model": SCRIPTED, "parts": [{"type": "text", "text": call}]}
        await client.post(f"/session/{session_id}/prompt_async", body)
        async with asyncio.timeout(60):
            while not (project / "started").exists():
                await asyncio.sleep(0.02)
        assert (await client.http.delete(f"/session/{session_id}")).json() is True
        await events.wait_for("session.deleted")
        assert events.types().count("session.idle") == 1
        assert "session.error" not in events.types()


async def test_a_permission_request_waits_for_any_client_and_is_shown_to_one_that_comes_later(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client, listening(client) as events:
        session_id = await client.create(
            title="One", permission=[{"permission": "bash", "pattern": "*", "action": "ask"}]
        )
        script = 'CALL bash {"command": "echo hi", "description": "Say hi"}\n---\nSAY done'
        prompt = asyncio.create_task(client.prompt(session_id, script))
        asked = await events.wait_for("permission.asked", sessionID=session_id)
        async with listening(client) as late:
            await late.wait_for("permission.asked", sessionID=session_id)
        assert [one["id"] for one in await client.get("/permission")] == [asked["properties"]["id"]]
        await client.post(f"/permission/{asked['properties']['id']}/reply", {"reply": "once"})
        assert (await prompt)["info"]["finish"] == "stop"
        assert await client.get("/permission") == []


@pytest.mark.parametrize("path", ["/session/nonsense", "/session/ses_..%2f..%2fetc", "/session/msg_123"])
async def test_an_id_without_its_form_is_refused(tmp_path: Path, path: str) -> None:
    async with serving(tmp_path / "p") as client:
        response = await client.http.get(path)
        assert response.status_code in (400, 404)
        assert response.headers["content-type"] == "application/json"


async def test_errors_are_json_and_name_what_is_wrong(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        session_id = await client.create(title="One")
        response = await client.http.post(f"/session/{session_id}/message", json={"parts": [{"type": "text"}]})
        assert response.status_code == 400
        assert response.json()["error"][0]["path"] == ["parts", 0, "text"]
        response = await client.http.get("/no/such/path", headers={"accept": "text/html"})
        assert (response.status_code, response.json()["name"]) == (404, "NotFoundError")
        response = await client.http.post("/session", content=b"{bad", headers={"content-type": "application/json"})
        assert (response.status_code, response.text) == (400, "Malformed JSON in request body")
        body = {"model": {"providerID": "nope", "modelID": "nope"}, "parts": [{"type": "text", "text": "x"}]}
        response = await client.http.post(f"/session/{session_id}/message", json=body)
        assert (response.status_code, response.content) == (200, b"")
        stored = await client.get(f"/session/{session_id}/message")
        assert "nope" in stored[-1]["info"]["error"]["data"]["message"]


async def test_a_prompt_without_a_reply_is_only_stored(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        session_id = await client.create(title="One")
        stored = await client.prompt(session_id, "SAY nothing", noReply=True)
        assert stored["info"]["role"] == "user"
        assert await client.get("/session/status") == {}
        answer = await client.prompt(session_id, "SAY something", model=SCRIPTED)
        assert answer["info"]["role"] == "assistant"
        assert len(await client.get(f"/session/{session_id}/message")) == 3


async def test_secrets_of_the_configuration_are_not_shown(tmp_path: Path) -> None:
    project = tmp_path / "p"
    project.mkdir()
    (project / "opencode.json").write_text(
        '{"provider": {"own": {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": "http://127.0.0.1:9/v1",'
        ' "apiKey": "sk-s3cret", "headers": {"X-Key": "s3cret"}}, "models": {"m": {}}}},'
        ' "mcp": {"s": {"type": "local", "command": ["true"], "environment": {"KEY": "s3cret"}, "enabled": false},'
        ' "q": {"type": "remote", "url": "http://127.0.0.1:9/?a=b&access_token=s3cret", "enabled": false},'
        ' "p": {"type": "remote", "url": "http://u:s3cret-word@127.0.0.1:9/", "enabled": false},'
        ' "c": {"type": "local", "command": ["true", "--token", "s3cret", "--key=s3cret"], "enabled": false},'
        ' "r": {"type": "remote", "url": "http://127.0.0.1:9", "enabled": false, "oauth": {"clientSecret": "s3cret"}}},'
        ' "lsp": {"own": {"command": ["true"], "env": {"LICENCE": "s3cret"}}}}'
    )
    async with serving(project) as client:
        for path in ("/config", "/config/providers", "/provider", "/mcp", "/global/config"):
            assert "s3cret" not in (await client.http.get(path)).text, path


async def test_the_documentation_describes_every_operation(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        document = await client.get("/doc")
        assert document["openapi"].startswith("3.1")
        operations = [one for path in document["paths"].values() for one in path.values()]
        assert len({operation["operationId"] for operation in operations}) == len(operations)
        assert all(
            (operation["summary"] and "200" in operation["responses"]) or "204" in operation["responses"]
            for operation in operations
        )


async def test_settings_are_changed_in_the_file_of_the_directory_without_losing_secrets(tmp_path: Path) -> None:
    project = tmp_path / "p"
    project.mkdir()
    file = project / "opencode.json"
    file.write_text(
        '{"username": "before", "mcp": {"s": {"type": "remote", "url": "http://127.0.0.1:9", "enabled": false,'
        ' "headers": {"Authorization": "s3cret"}}, "t": {"type": "remote", "url": "http://127.0.0.1:9?token=s3cret",'
        ' "enabled": false}, "u": {"type": "local", "command": ["true", "--token", "s3cret", "--api-key=s3cret"],'
        ' "enabled": false}}}'
    )
    async with serving(project) as client:
        shown = await client.get("/config")
        changes = {"username": "after", "mcp": shown["mcp"]}
        assert (await client.http.patch("/config", json=changes)).status_code == 200
        assert file.read_text().count("s3cret") == 4
        assert (await client.get("/config"))["username"] == "after"
        assert (await client.http.patch("/config", json={"username": 5})).status_code == 400
        file.write_text('{"username": "x"} // mine')
        assert (await client.http.patch("/config", json={"username": "y"})).status_code == 409
        assert file.read_text() == '{"username": "x"} // mine'


async def test_odd_parameters_are_answered_as_opencode_does(tmp_path: Path) -> None:
    async with serving(make_project(tmp_path / "p")) as client:
        session_id = await client.create(title="One")
        for number in range(3):
            await client.prompt(session_id, f"SAY {number}", noReply=True)
        counts = [
            (limit, len(await client.get(f"/session/{session_id}/message?limit={limit}"))) for limit in (-1, 0, 1.5)
        ]
        assert counts == [(-1, 0), (0, 3), (1.5, 2)]
        for odd in ("inf", "-inf", "nan", "1e300"):
            for path in (f"/session/{session_id}/message", "/session", "/api/fs/find"):
                assert (await client.http.get(f"{path}?limit={odd}")).status_code < 500
        assert await client.get("/file?path=absent") == []
        assert await client.get("/find?pattern=[]") == []
        unchanged = await client.post(f"/session/{session_id}/revert", {"messageID": "msg_unknown0000000000000000"})
        assert "revert" not in unchanged


async def test_an_automatic_compaction_continues(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        session_id = await client.create(title="One")
        await client.prompt(session_id, "SAY one")
        body = {"providerID": "scripted", "modelID": "prompt", "auto": True}
        assert await client.post(f"/session/{session_id}/summarize", body) is True
        messages = await client.get(f"/session/{session_id}/message")
        assert [message["parts"][0]["type"] for message in messages[2:]][:3] == ["compaction", "step-start", "text"]
        assert messages[2]["parts"][0]["auto"] is True
        assert messages[4]["parts"][0]["synthetic"] is True


@pytest.mark.parametrize("path", ["/config", "/global/config"])
async def test_an_unknown_setting_is_not_written(tmp_path: Path, path: str) -> None:
    async with serving(tmp_path / "p") as client:
        refused = await client.http.patch(path, json={"type": "text"})
        assert refused.status_code == 400
        assert (refused.json()["success"], refused.json()["error"][0]["path"]) == (False, ["type"])
        await client.create(title="One")


async def test_bodies_are_refused_as_opencode_refuses_them(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        session_id = await client.create(title="")
        assert (await client.get(f"/session/{session_id}"))["title"] == ""
        null = await client.http.post("/session", json={"title": None})
        assert (null.status_code, null.json()["error"][0]["path"]) == (400, ["title"])
        for kind in ({}, {"content-type": "text/plain"}):
            path = f"/session/{session_id}/message"
            untyped = await client.http.post(path, content=b'{"parts": []}', headers=kind)
            assert (untyped.status_code, untyped.json()["error"][0]["path"]) == (400, ["parts"])
            optional = await client.http.post("/session", content=b'{"title": "x"}', headers=kind)
            assert optional.status_code == 415
        assert len(await client.get("/session")) == 1


async def test_a_fork_at_a_removed_message_has_what_came_before_it(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        session_id = await client.create(title="Origin")
        prompts = [(await client.prompt(session_id, f"SAY {text}"))["info"]["parentID"] for text in ("one", "two")]
        for _ in range(2):
            assert (await client.http.delete(f"/session/{session_id}/message/{prompts[1]}")).json() is True
        fork = await client.post(f"/session/{session_id}/fork", {"messageID": prompts[1]})
        copied = await client.get(f"/session/{fork['id']}/message")
        assert [message["parts"][0].get("text") for message in copied][:1] == ["SAY one"]
        assert len(copied) == 2


async def test_cursors_lead_from_the_newest_page_of_messages_to_the_oldest(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        session_id = await client.create(title="One")
        path, body = (
            f"/session/{session_id}/message",
            {"noReply": True, "model": SCRIPTED, "parts": [{"type": "text", "text": "kept"}]},
        )
        for _ in range(5):
            await client.http.post(path, json=body)
        message_ids = [message["info"]["id"] for message in await client.get(path)]
        pages, cursor = list[list[str]](), ""
        while True:
            response = await client.http.get(path, params={"limit": 2, "before": cursor})
            pages.append([message["info"]["id"] for message in response.json()])
            if "x-next-cursor" not in response.headers:
                break
            cursor = response.headers["x-next-cursor"]
            assert response.headers["link"].endswith(f'before={cursor}>; rel="next"')
        assert pages == [message_ids[3:], message_ids[1:3], message_ids[:1]]


@pytest.mark.parametrize(
    "query", ["before=eyJpZCI6MX0&limit=2", "before=%FF&limit=2", f"before=msg_{'0' * 26}&limit=2"]
)
async def test_a_cursor_that_the_server_did_not_send_is_refused(tmp_path: Path, query: str) -> None:
    async with serving(tmp_path / "p") as client:
        session_id = await client.create(title="One")
        response = await client.http.get(f"/session/{session_id}/message?{query}")
        assert (response.status_code, response.json()["name"]) == (400, "BadRequest")


@pytest.mark.parametrize(("query", "found"), [("ntoes", ["notes.txt"]), ("notez", ["notes.txt"]), ("zzzz", [])])
async def test_a_file_is_found_by_a_name_with_a_typing_error(tmp_path: Path, query: str, found: list[str]) -> None:
    project = make_project(tmp_path / "p")
    (project / "notes.txt").write_text("x")
    async with serving(project) as client:
        listed = await client.get(f"/api/fs/find?query={query}")
        assert [entry["path"] for entry in listed["data"]] == found


async def test_the_newer_terminal_client_is_listed_the_built_in_skill_and_can_run_it(tmp_path: Path) -> None:
    async with serving(make_project(tmp_path / "p")) as client:
        (skill,) = (await client.get("/api/skill"))["data"]
        session_id = await client.create(title="One")
        body = {"command": skill["name"], "arguments": "SAY done", "model": "scripted/prompt"}
        response = await client.http.post(f"/session/{session_id}/command", json=body)
        assert response.status_code == 200, response.text
        prompt = (await client.get(f"/session/{session_id}/message"))[0]
        assert prompt["parts"][0]["text"].startswith(skill["content"])


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("limit=0x10", 200),
        ("limit=%2B1", 200),
        ("limit=", 200),
        ("limit=1e300", 200),
        ("limit=null", 400),
        ("limit=NaN", 400),
        ("limit=Infinity", 400),
        ("limit=1&limit=2", 400),
        ("search=a&search=b", 400),
        ("roots=yes", 200),
        ("roots=null", 200),
    ],
)
async def test_queries_are_read_as_javascript_reads_them(tmp_path: Path, query: str, status: int) -> None:
    async with serving(tmp_path / "p") as client:
        await client.create(title="One")
        assert (await client.http.get(f"/session?{query}")).status_code == status


@pytest.mark.parametrize("path", ["/session/ses_%C3%BC", "/session/ses_a%20b", "/session/ses_x/message/msg_%C3%BC"])
async def test_an_id_that_cannot_exist_is_not_found(tmp_path: Path, path: str) -> None:
    async with serving(tmp_path / "p") as client:
        response = await client.http.get(path)
        assert (response.status_code, response.json()["name"]) == (404, "NotFoundError")


async def test_null_is_refused_in_a_field_of_a_field(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        session_id = await client.create(title="One")
        response = await client.http.patch(f"/session/{session_id}", json={"time": {"archived": None}})
        assert response.json()["error"][0]["path"] == ["time", "archived"]


async def test_a_part_that_does_not_exist_is_removed_already(tmp_path: Path) -> None:
    message, part = f"msg_{'0' * 26}", f"prt_{'0' * 26}"
    async with serving(tmp_path / "p") as client:
        session_id = await client.create(title="One")
        response = await client.http.delete(f"/session/{session_id}/message/{message}/part/{part}")
        assert (response.status_code, response.json()) == (200, True)


async def test_a_session_keeps_the_model_that_its_client_chose_for_it(tmp_path: Path) -> None:
    chosen = {"providerID": "scripted", "id": "prompt"}
    async with serving(make_project(tmp_path / "p")) as client:
        created = await client.post("/session", {"agent": "plan", "model": chosen, "metadata": {"a": 1}})
        assert created["metadata"] == {"a": 1}
        parts = [{"type": "text", "text": "SAY one"}]
        answer = await client.post(f"/session/{created['id']}/message", {"parts": parts})
        assert (answer["info"]["providerID"], answer["info"]["modelID"]) == ("scripted", "prompt")
        assert answer["info"]["agent"] == "build"
        fork = await client.post(f"/session/{created['id']}/fork", {})
        answer = await client.post(f"/session/{fork['id']}/message", {"parts": parts})
        assert answer["info"]["modelID"] == "prompt"


async def test_the_tools_of_a_prompt_become_the_rules_of_its_session(tmp_path: Path) -> None:
    async with serving(make_project(tmp_path / "p")) as client:
        session_id = await client.create(title="One")
        await client.prompt(session_id, "SAY one", tools={"bash": False, "edit": True})
        rules = (await client.get(f"/session/{session_id}"))["permission"]
        assert [(rule["permission"], rule["action"]) for rule in rules] == [("bash", "deny"), ("edit", "allow")]
        await client.prompt(session_id, "SAY two", tools={"read": False}, noReply=True)
        rules = (await client.get(f"/session/{session_id}"))["permission"]
        assert rules == [{"permission": "read", "pattern": "*", "action": "deny"}]


async def test_a_shell_command_gets_the_id_that_its_client_chose(tmp_path: Path) -> None:
    message_id = f"msg_{'f' * 12}{'A' * 14}"
    async with serving(make_project(tmp_path / "p")) as client:
        session_id = await client.create(title="One")
        body = {"agent": "build", "command": "true", "messageID": message_id, "model": SCRIPTED}
        answer = await client.post(f"/session/{session_id}/shell", body)
        assert answer["info"]["parentID"] == message_id


async def test_rules_are_added_to_a_session_and_metadata_replaced(tmp_path: Path) -> None:
    rules = [{"permission": name, "pattern": "*", "action": "deny"} for name in ("bash", "edit")]
    async with serving(tmp_path / "p") as client:
        session_id = await client.create(permission=rules[:1], metadata={"a": 1})
        body = {"permission": rules[1:], "metadata": {"b": 2}}
        changed = (await client.http.patch(f"/session/{session_id}", json=body)).json()
        assert (changed["permission"], changed["metadata"]) == (rules, {"b": 2})
        nothing = {"permission": None, "metadata": None}
        changed = (await client.http.patch(f"/session/{session_id}", json=nothing)).json()
        assert (changed["permission"], changed["metadata"]) == (rules, {"b": 2})


async def test_sessions_are_listed_by_their_folder_in_the_project(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    (project / "sub" / "deep").mkdir(parents=True)
    async with serving(project) as client:
        for folder in (".", "sub", "sub/deep"):
            header = {"x-opencode-directory": str(project / folder)}
            await client.http.post("/session", json={"title": folder}, headers=header)
        here, sub = f"directory={project}", f"directory={project / 'sub'}"
        queries = ["path=sub", f"{here}&path=", f"{sub}&scope=project", sub, "path=su", f"{here}&path=sub/deep"]
        listed = [[session["title"] for session in await client.get(f"/session?{query}")] for query in queries]
    everything = ["sub/deep", "sub", "."]
    assert listed == [everything[:2], everything, everything, ["sub"], [], everything[:1]]


async def test_roots_can_be_switched_off_by_name(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        parent = await client.create(title="One")
        await client.create(title="Two", parentID=parent)
        counts = [len(await client.get(f"/session?roots={value}")) for value in ("true", "x", "false", "0", "")]
        assert counts == [1, 1, 2, 2, 2]


async def test_the_answer_to_changed_settings_has_what_opencode_adds_to_them(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client:
        changed = {"permission": "ask", "keybinds": {"leader": "ctrl+y"}}
        answer = (await client.http.patch("/config", json=changed)).json()
        assert answer["permission"] == {"*": "ask"}
        assert answer["keybinds"]["leader"] == "ctrl+y"
        assert len(answer["keybinds"]) > 50
        everything = (await client.http.patch("/global/config", json={"username": "me"})).json()
        assert everything == await client.get("/global/config")
        assert everything["username"] == "me"


async def test_a_change_of_a_project_is_published_to_the_listeners_of_all_directories_alone(tmp_path: Path) -> None:
    async with serving(make_project(tmp_path / "p")) as client:
        project = await client.get("/project/current")
        async with listening(client) as here, listening(client, "/global/event") as everywhere:
            renamed = await client.http.patch(f"/project/{project['id']}", json={"name": "Mine"})
            assert renamed.json()["name"] == "Mine"
            await client.create(title="After it")
            await everywhere.wait_for("session.created")
            await here.wait_for("session.created")
        assert "project.updated" in everywhere.types()
        assert "project.updated" not in here.types()


async def test_a_prompt_whose_model_does_not_exist_changes_no_summary(tmp_path: Path) -> None:
    async with serving(make_project(tmp_path / "p")) as client:
        session_id = await client.create(title="One")
        async with listening(client) as stream:
            body = {"model": {"providerID": "scripted", "modelID": "absent"}, "parts": [{"type": "text", "text": "x"}]}
            await client.http.post(f"/session/{session_id}/message", json=body)
            await stream.wait_for("session.idle")
        assert "session.diff" not in stream.types()
        assert "summary" not in await client.get(f"/session/{session_id}")
        assert "summary" not in (await client.get(f"/session/{session_id}/message"))[0]["info"]


async def test_the_record_of_a_structured_answer_has_the_metadata_of_opencode(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "number"}}}
    async with serving(make_project(tmp_path / "p")) as client:
        session_id = await client.create(title="One")
        answer = await client.prompt(
            session_id, 'CALL StructuredOutput {"n": 1}', format={"type": "json_schema", "schema": schema}
        )
        call = next(part for part in answer["parts"] if part["type"] == "tool")
        assert call["state"]["metadata"] == {"valid": True}


@pytest.mark.parametrize("seen", ["message.updated", "message.part.updated", "session.status"])
async def test_a_session_is_removed_while_its_prompt_begins(tmp_path: Path, seen: str) -> None:
    async with serving(make_project(tmp_path / "p")) as client, listening(client) as events:
        session_id = await client.create(title="One")
        body = {"model": SCRIPTED, "parts": [{"type": "text", "text": "SLOW 600\nSAY late"}]}
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            prompt = group.create_task(client.http.post(f"/session/{session_id}/message", json=body))
            await events.wait_for(seen)
            removed = await client.http.delete(f"/session/{session_id}")
        assert (removed.status_code, removed.json()) == (200, True)
        assert prompt.result().status_code in (200, 500)
        assert await client.get("/session") == []


async def test_sessions_below_a_removed_one_are_stopped_with_it(tmp_path: Path) -> None:
    async with serving(make_project(tmp_path / "p")) as client, listening(client) as events:
        parent = await client.create(title="Parent")
        child = await client.create(title="Child", parentID=parent)
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            body = {"model": SCRIPTED, "parts": [{"type": "text", "text": "SLOW 600\nSAY late"}]}
            group.create_task(client.http.post(f"/session/{child}/message", json=body))
            await events.wait_for("session.status", sessionID=child)
            assert (await client.http.delete(f"/session/{parent}")).status_code == 200
        assert await client.get("/session") == []


async def test_every_read_of_a_directory_that_is_gone_is_answered(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    async with serving(tmp_path / "other") as client:
        client.http.headers["x-opencode-directory"] = str(project)
        session_id = await client.create(title="One")
        operations = (await client.get("/doc"))["paths"]
        shutil.rmtree(project)
        values = {"path": ".", "pattern": "hello", "query": "read", "provider": "scripted", "model": "prompt"}
        for path, methods in operations.items():
            if "get" in methods and "{" not in path and not path.endswith(("/event", "/events", "/control/next")):
                response = await client.http.get(path, params=values if not path.startswith("/history") else None)
                assert response.status_code < 500, (path, response.text)
        assert [one["id"] for one in await client.get("/session")] == [session_id]
        answer = await client.prompt(session_id, "SAY still here")
        assert answer["info"]["finish"] == "stop"


@pytest.mark.parametrize(
    ("call", "asked", "settled"),
    [
        ('bash {"command": "touch x", "description": "x"}', "permission.asked", "permission.replied"),
        (
            'question {"questions": [{"question": "?", "header": "h", "options": []}]}',
            "question.asked",
            "question.rejected",
        ),
    ],
)
async def test_an_abort_closes_the_dialogs_of_all_clients(tmp_path: Path, call: str, asked: str, settled: str) -> None:
    project = tmp_path / "p"
    project.mkdir()
    (project / "opencode.json").write_text('{"permission": {"bash": "ask", "question": "allow"}}')
    async with serving(project) as client, listening(client) as events:
        session_id = await client.create(title="One")
        prompt = asyncio.create_task(client.prompt(session_id, f"CALL {call}"))
        request = (await events.wait_for(asked))["properties"]
        assert await client.post(f"/session/{session_id}/abort") is True
        assert (await prompt)["info"]["error"]["name"] == "MessageAbortedError"
        closed = (await events.wait_for(settled))["properties"]
        assert (closed["sessionID"], closed["requestID"]) == (session_id, request["id"])
        assert [*await client.get("/permission"), *await client.get("/question")] == []


async def test_an_abort_announces_the_end_of_a_subagent_before_that_of_its_parent(tmp_path: Path) -> None:
    async with serving(tmp_path / "p") as client, listening(client) as events:
        session_id = await client.create(title="One")
        call = 'CALL task {"description": "x", "prompt": "HANG", "subagent_type": "general"}'
        prompt = asyncio.create_task(client.prompt(session_id, call))
        while not (children := await client.get(f"/session/{session_id}/children")):
            await asyncio.sleep(0.02)
        await events.wait_for("session.status", sessionID=children[0]["id"], status={"type": "busy"})
        await client.post(f"/session/{session_id}/abort")
        await prompt
        await events.wait_for("session.error", sessionID=session_id)
        errors = [event["properties"]["sessionID"] for event in events.seen if event["type"] == "session.error"]
        assert errors == [children[0]["id"], session_id]
