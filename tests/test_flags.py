from __future__ import annotations

import pytest

from opensesh.flags import Flags


@pytest.mark.parametrize(
    ("text", "on"),
    [("1", True), ("true", True), ("TRUE", True), ("yes", False), ("0", False), ("", False), ("on", False)],
)
def test_a_switch_is_on_for_1_and_true_only(text: str, on: bool) -> None:
    assert Flags({"OPENCODE_DISABLE_SHARE": text}).disable_share is on


def test_flags_are_those_of_the_moment_in_which_they_are_read() -> None:
    environ: dict[str, str] = {}
    before = Flags(environ)
    environ |= {"OPENCODE_CLIENT": "app", "OPENCODE_CONFIG_DIR": "/x"}
    after = Flags(environ)
    assert [(flags.client, flags.config_dir) for flags in (before, after)] == [("cli", None), ("app", "/x")]


def test_the_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCODE_FAKE_VCS", "git")
    assert Flags().fake_vcs == "git"


def test_our_name_is_looked_at_first_and_can_switch_off() -> None:
    flags = Flags({"OPENCODE_AUTO_SHARE": "1", "OPENSESH_AUTO_SHARE": "0"})
    assert flags.auto_share is False
    assert flags.variable("AUTO_SHARE") == "OPENSESH_AUTO_SHARE"


@pytest.mark.parametrize(("text", "number"), [("1500", 1500), ("0", None), ("-5", None), ("1.5", None), ("many", None)])
def test_a_number_is_whole_and_above_zero(text: str, number: int | None) -> None:
    assert Flags({"OPENCODE_EXPERIMENTAL_BASH_DEFAULT_TIMEOUT_MS": text}).bash_default_timeout_ms == number


@pytest.mark.parametrize(
    ("name", "prompt", "skills"),
    [
        ("DISABLE_CLAUDE_CODE", True, True),
        ("DISABLE_CLAUDE_CODE_PROMPT", True, False),
        ("DISABLE_CLAUDE_CODE_SKILLS", False, True),
        ("DISABLE_EXTERNAL_SKILLS", False, True),
    ],
)
def test_some_switches_imply_others(name: str, prompt: bool, skills: bool) -> None:
    flags = Flags({f"OPENCODE_{name}": "1"})
    assert (flags.disable_claude_code_prompt, flags.disable_external_skills) == (prompt, skills)


def test_experimental_switches_on_what_is_tried_out() -> None:
    flags = Flags({"OPENCODE_EXPERIMENTAL": "1"})
    assert (flags.plan_mode, flags.enable_exa, flags.disable_share) == (True, True, False)
