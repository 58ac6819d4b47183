from __future__ import annotations

from pathlib import Path

from opensesh.history.maintenance.disk_usage import measure
from opensesh.storage import open_store
from opensesh.storage.json_tree.store import JsonTree

from .sample_tree import Sample, contents

FIXTURES = Path(__file__).parents[1] / "fixtures"


def test_every_byte_of_a_tree_is_counted_once(sample: Sample) -> None:
    parent = sample.talk("parent")
    child = sample.talk("child", parent=parent["id"])
    sample.write(("todo", "ses_gone"), [{"content": "x"}])
    [usage] = measure(JsonTree(sample.root))
    sizes = {path: len(data) for path, data in contents(sample.root).items() if path.endswith(".json")}
    assert usage.total.bytes == sum(sizes.values())
    assert usage.total.records == len(sizes)
    assert sum(share.bytes for share in usage.kinds.values()) == usage.total.bytes
    own = sum(value.own.bytes for value in usage.sessions.values())
    projects = usage.kinds["project"].bytes
    assert own + usage.orphans.bytes + projects == usage.total.bytes
    assert usage.orphans.bytes == sizes["todo/ses_gone.json"]
    sums = usage.sessions
    assert sums[parent["id"]].inclusive == sums[parent["id"]].own.bytes + sums[child["id"]].own.bytes
    assert usage.children.bytes == sums[child["id"]].own.bytes
    assert [item.session for item in usage.largest()] == [parent["id"], child["id"]]


def test_tools_and_attachments_are_counted_separately_at_any_size(sample: Sample) -> None:
    message = sample.prompt(sample.session())
    sample.tool(message, "bash", output="x" * 100)
    sample.tool(message, "read", output="y" * 200_000)
    picture = {"type": "file", "mime": "image/png", "url": "data:image/png;base64," + "A" * 90_000}
    sample.tool(message, "webfetch", attachments=[picture])
    sample.part(message, **picture)
    [usage] = measure(JsonTree(sample.root))
    assert list(usage.document()["tools"]) == ["read", "webfetch", "bash"]
    assert usage.tools["bash"].records == 1
    assert usage.attachments.records == 2
    assert usage.attachments.bytes == 2 * len(str(picture["url"]))


def test_small_attachments_are_counted_as_large_ones_are(sample: Sample) -> None:
    message = sample.prompt(sample.session())
    picture = {"type": "file", "mime": "image/png", "url": "data:image/png;base64,AAAA"}
    sample.tool(message, "webfetch", attachments=[picture])
    sample.part(message, **picture)
    [usage] = measure(JsonTree(sample.root))
    assert (usage.attachments.records, usage.attachments.bytes) == (2, 2 * len(str(picture["url"])))


def test_the_name_of_a_tool_is_not_taken_from_its_input(sample: Sample) -> None:
    message = sample.prompt(sample.session())
    part = sample.tool(message, "batch", input={"calls": [{"tool": "read"}]})
    sample.write(("part", message["id"], part["id"]), {"type": "tool", "state": part["state"]} | part)
    [usage] = measure(JsonTree(sample.root))
    assert list(usage.tools) == ["batch"]


def test_other_folders_of_opencode_are_measured(sample: Sample) -> None:
    (sample.root.parent / "snapshot" / "p").mkdir(parents=True)
    (sample.root.parent / "snapshot" / "p" / "pack").write_bytes(b"x" * 1000)
    [usage] = measure(JsonTree(sample.root))
    assert usage.beside == {"snapshot": 1000}


def test_a_database_is_measured_by_its_records() -> None:
    [tree] = measure(JsonTree(FIXTURES / "opencode-1.1.65" / "storage"))
    [database] = measure(open_store(str(FIXTURES / "opencode-1.2" / "opencode.db")))
    assert database.kinds["part"].records == tree.kinds["part"].records
    assert database.tools.keys() == tree.tools.keys()
    assert database.sessions.keys() == tree.sessions.keys()


def test_damage_is_measured_and_called_unreadable(sample: Sample) -> None:
    part = sample.part(sample.prompt(sample.session()), type="text", text="x")
    sample.path("part", part["messageID"], part["id"]).write_bytes(b"?" * 50)
    [usage] = measure(JsonTree(sample.root))
    assert usage.parts["unreadable"].bytes == 50
