from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opensesh.cli.output import bar, calendar
from opensesh.cli.stats_command import money
from opensesh.text import format_bytes, format_count

from ..history.sample_tree import Sample
from .running import Screen, Terminal

FIXTURES = Path(__file__).parents[1] / "fixtures"


@pytest.mark.parametrize("by", ["day", "project", "model", "agent", "session"])
def test_rows_add_up_to_the_total_however_they_are_grouped(terminal: Terminal, store: Path, by: str) -> None:
    answer = terminal.json("stats", "--by", by)
    assert answer["by"] == by
    assert set(answer["prices"]) == {"table", "date"}
    for row in answer["rows"]:
        assert {"key", "tokens", "cost", "repriced", "sessions", "messages"} <= set(row)
        assert set(row["tokens"]) == {"input", "output", "reasoning", "cache"}
    assert sum(row["cost"] for row in answer["rows"]) == pytest.approx(answer["total"]["cost"])
    assert sum(row["messages"] for row in answer["rows"]) == answer["total"]["messages"] == 42
    assert answer["copied"]["messages"] == 12


def test_the_table_names_its_prices_and_counts_forks(terminal: Terminal, store: Path) -> None:
    out = terminal.run("stats", "--utc")
    assert "2026-11-15    42  256.5K     950       0     5.7K        0  $0.7854    unknown" in out
    assert "Re-priced with models.dev prices of 2026-" in out
    assert "12 messages ($0.1065) copied by 2 forks: counted once." in out
    assert "Sun █" in out
    assert terminal.error == ""


def test_sessions_are_shown_with_their_subagents_and_apart_if_asked(terminal: Terminal, store: Path) -> None:
    assert "sub thing" not in terminal.run("stats", "--by", "session")
    assert "sub thing" in terminal.run("stats", "--by", "session", "--children")
    rows = {row["key"]: row for row in terminal.json("stats", "--by", "session")["rows"]}
    parent, child = rows["ses_e1f50577fffejV6VGQt622W6kl"], rows["ses_e1f505771ffeo3ptRkUuHl1Hjm"]
    assert child["parentID"] == parent["key"]
    assert parent["inclusive"]["cost"] == pytest.approx(parent["cost"] + child["cost"])


def test_sessions_whose_parents_are_gone_or_go_in_a_circle_are_shown(terminal: Terminal, sample: Sample) -> None:
    sample.talk("left alone", parent="ses_gone")
    one = sample.talk("one of two")
    other = sample.talk("two of two", parent=one["id"])
    sample.write(("session", "proj", one["id"]), one | {"parentID": other["id"]})
    sample.talk("below both", parent=one["id"])
    out = terminal.run("stats", "--by", "session")
    shown = ("left alone", "one of two", "two of two", "below both")
    assert [name in out for name in shown] == [True, True, True, False]


def test_a_calendar_says_what_its_shades_mean(terminal: Terminal, sample: Sample) -> None:
    sample.talk()
    drawn = terminal.run("stats").splitlines()
    assert [line[:3].strip() for line in drawn[1:8]] == ["Mon", "", "Wed", "", "Fri", "", "Sun"]
    assert drawn[8:10] == ["Per day: · nothing  ░ ▒ ▓ █ the most", ""]
    assert "A day each" not in terminal.run("stats", "--by", "model")


def test_a_day_that_is_none_is_a_row_and_not_in_the_calendar(terminal: Terminal, sample: Sample) -> None:
    sample.answer(sample.session(), time={"created": 10**20})
    out = terminal.run("stats")
    assert "(unknown)" in out
    assert terminal.code == 0


def test_a_time_that_is_none_is_refused_before_anything_is_read(terminal: Terminal, sample: Sample) -> None:
    sample.talk()
    terminal.run("stats", "--since", "whenever")
    assert terminal.code == 2
    assert not Path.home().joinpath(".cache", "opensesh", "ledger").exists()


def test_csv_has_a_line_a_row_and_nothing_else(terminal: Terminal, store: Path) -> None:
    lines = list(csv.DictReader(io.StringIO(terminal.run("stats", "--by", "agent", "--csv"))))
    assert [line["agent"] for line in lines] == ["build", "plan", "general", "compaction"]
    assert sum(float(line["cost"]) for line in lines) == pytest.approx(0.785448)
    assert lines[0]["repriced"] == ""
    sessions = list(csv.DictReader(io.StringIO(terminal.run("stats", "--by", "session", "--csv"))))
    assert float(sessions[0]["inclusive_cost"]) == pytest.approx(0.612447)
    tools = list(csv.DictReader(io.StringIO(terminal.run("stats", "--by", "tool", "--csv"))))
    assert (tools[0]["tool"], tools[0]["calls"], tools[0]["errors"]) == ("bash", "4", "1")
    for other in ("--json", "--bytes"):
        terminal.run("stats", "--csv", other)
        assert terminal.code == 2


def test_tools_are_counted_and_drawn(terminal: Terminal, store: Path) -> None:
    answer = terminal.json("stats", "--by", "tool")
    assert {row["key"]: row["calls"] for row in answer["rows"]}["read"] == 2
    assert all(row["cost"] is None and row["tokens"] is None for row in answer["rows"])
    assert "bash           4       1" in terminal.run("stats", "--by", "tool")
    terminal.run("stats", "--by", "tool", "--until", "2020-01-01")
    assert "No tool calls" in terminal.error


def test_bars_are_drawn_smaller_rather_than_cut(screen: Callable[..., Screen], store: Path) -> None:
    shown = screen("stats", "--by", "tool", columns=60)
    assert shown.end() == 0
    lengths = {line.split()[0]: line.count("█") for line in shown.text.splitlines()[1:]}
    assert lengths["bash"] // 2 == lengths["read"] > 4
    assert "…" not in shown.text


def test_tools_and_sessions_beyond_the_limit_are_counted(terminal: Terminal, store: Path) -> None:
    assert terminal.run("stats", "--by", "tool", "--limit", "2").endswith("\n2 of 6 rows; --limit 0 shows all.\n")
    assert "rows;" not in terminal.run("stats", "--by", "tool")
    assert terminal.run("stats", "--bytes", "--limit", "3").endswith("\n3 of 13 sessions; --limit 0 shows all.\n")
    assert "sessions;" not in terminal.run("stats", "--bytes")


def test_time_and_project_choose_what_counts(terminal: Terminal, sample: Sample) -> None:
    sample.talk()
    sample.talk(project="global", directory="/srv/dev/elsewhere")
    sample.write(("project", "global"), {"id": "global", "worktree": "/", "sandboxes": []})
    assert terminal.json("stats", "--project", "shop")["total"]["cost"] == 0.5
    assert terminal.json("stats", "--until", "2026-01-01")["rows"] == []
    assert terminal.json("stats", "--since", "2026-01-01T00:00:00+00:00")["total"]["cost"] == 1.0
    assert terminal.json("stats", "--project", "zzzz")["error"]["name"] == "NotFound"
    terminal.run("stats", "--until", "2020-01-01")
    assert terminal.error == "No model calls in that time.\n"


def test_sessions_outside_of_repositories_count_by_their_folder(terminal: Terminal, sample: Sample) -> None:
    sample.write(("project", "global"), {"id": "global", "worktree": "/", "sandboxes": []})
    sample.talk()
    for folder in ("notes", "letters", "letters"):
        sample.talk(project="global", directory=f"/home/ada/{folder}")
    rows = {row["key"]: row["sessions"] for row in terminal.json("stats", "--by", "project")["rows"]}
    assert rows == {"proj": 1, "/home/ada/notes": 1, "/home/ada/letters": 2}
    table = terminal.run("stats", "--by", "project").splitlines()
    assert {line.split()[0] for line in table[1:5]} == {"letters", "notes", "shop", "total"}


def test_damage_is_reported_and_the_rest_is_counted(terminal: Terminal, sample: Sample) -> None:
    session = sample.talk()
    sample.path("message", session["id"], sample.messages(session)[1]["id"]).write_bytes(b"{")
    assert terminal.json("stats")["total"]["cost"] == 0.25
    assert "1 damaged record skipped" in terminal.error


def test_a_sessions_own_cost_stands_beside_that_with_its_subagents(terminal: Terminal, sample: Sample) -> None:
    parent = sample.talk("Parent", answers=1)
    sample.talk("Alone", answers=1)
    assert "OWN COST" not in terminal.run("stats", "--by", "session")
    sample.talk("Child", answers=2, parent=parent["id"])
    head, *rows = terminal.run("stats", "--by", "session").splitlines()
    assert head.split()[-4:] == ["OWN", "COST", "COST", "RE-PRICED"]
    costs = {name: [cell for cell in row.split() if cell[0] == "$"][:2] for row in rows for name in row.split()[1:2]}
    assert costs["Parent"] == ["$0.2500", "$0.7500"]
    assert costs["Alone"] == ["$0.2500", "$0.2500"]
    total = next(row for row in rows if row.startswith("total"))
    assert [cell for cell in total.split() if cell[0] == "$"][:2] == ["$1.00", "$1.00"]
    assert "OWN COST" not in terminal.run("stats", "--by", "project")


def test_bytes_are_printed_by_session_tool_and_kind(terminal: Terminal, store: Path) -> None:
    [usage] = terminal.json("stats", "--bytes")["stores"]
    assert usage["total"]["bytes"] == sum(path.stat().st_size for path in store.rglob("*.json"))
    assert set(usage["tools"]) == {"bash", "read", "edit", "write", "todowrite", "task"}
    out = terminal.run("stats", "--bytes", "--limit", "3")
    assert "WITH CHILDREN" in out
    assert "subagent sessions" in out


@pytest.mark.parametrize("columns", [20, 40, 80, 200])
def test_pictures_keep_to_the_width_of_the_terminal(
    terminal: Terminal, sample: Sample, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    session = sample.session()
    for _ in range(200):
        sample.clock += 3 * 86_400_000
        sample.answer(session)
    lines = terminal.run("stats", "--limit", "0").splitlines()
    assert max(len(line) for line in lines[:8]) <= max(columns, 20)
    assert any("█" in line for line in lines)


def test_a_calendar_has_a_column_a_week_and_shades_by_quarters() -> None:
    days: dict[str, Any] = {"2026-11-02": 1, "2026-11-03": 2, "2026-11-04": 3, "2026-11-05": 4, "2026-11-15": 0.1}
    lines = calendar(days, 80)
    assert lines[0].split() == ["Nov"]
    assert [line[4:].rstrip() for line in lines[1:]] == ["▒ ·", "▓ ·", "█ ·", "█ ·", "· ·", "· ·", "· ░"]
    assert calendar({}, 80) == []
    assert len(calendar({"2024-01-01": 1, "2026-11-15": 1}, 30)[1]) <= 30


def test_bars_and_numbers_are_short() -> None:
    assert [bar(value, 8, 8) for value in (0, 0.01, 4, 8, 99)] == ["", "▏", "████", "████████", "████████"]
    numbers = (0, 999, 1000, 999_949, 999_999, 2_500_000, 3 * 10**9)
    assert [format_count(number) for number in numbers] == ["0", "999", "1.0K", "999.9K", "1.0M", "2.5M", "3.0G"]
    assert [format_bytes(number) for number in (999, 999_949, 999_999)] == ["999 B", "999.9 KB", "1.0 MB"]


def test_what_takes_space_is_measured_whole(terminal: Terminal, store: Path) -> None:
    terminal.run("stats", "--bytes", "--project", "shop")
    assert (terminal.code, "--limit" in terminal.error) == (2, True)
    assert [money(units * 10**12) for units in (0, 1, 999, 1_234_567)] == ["$0.00", "$0.0010", "$0.9990", "$1,234.57"]
    assert [money(units * 10**10) for units in (1, 4, 5, -5)] == ["<$0.0001", "<$0.0001", "$0.0001", "$-0.0001"]
