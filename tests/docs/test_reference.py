from __future__ import annotations

import inspect
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from opensesh import __version__
from opensesh.cli.main import COMMANDS, command_parser

ROOT = Path(__file__).parents[2]
PYTHON = sorted((ROOT / "docs" / "reference" / "python").glob("*.md"))
MANUAL = ROOT / "docs" / "man" / "opensesh.1"


def test_the_command_reference_and_the_manual_page_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "reference.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_command_action_and_option_is_in_the_reference_and_in_the_manual() -> None:
    page = (ROOT / "docs" / "reference" / "commands.md").read_text("utf-8")
    manual = MANUAL.read_text("utf-8").replace("\\-", "-")
    assert f"opensesh {__version__}" in manual
    for name in COMMANDS:
        _, parser = command_parser(name)
        assert f"\n## {name}\n" in page
        actions = {f"{name} {action}": own for action, own in parser.actions.items()}
        for words, item in {name: parser, **actions}.items():
            assert f'.SS "opensesh {words}"' in manual
            for action in item.declared:
                for option in set(action.option_strings) - {"-h", "--help"}:
                    assert option in page
                    assert option in manual


@pytest.mark.parametrize("page", PYTHON, ids=lambda page: page.stem)
def test_every_member_that_the_python_reference_lists_exists(page: Path) -> None:
    for name, options in re.findall(r"^::: (\S+)\n((?:    .*\n)*)", page.read_text("utf-8"), re.MULTILINE):
        documented = pkgutil.resolve_name(name)
        listed = re.search(r"members: \[(.*?)\]", options, re.DOTALL)
        if listed is not None:
            source = inspect.getsource(documented)  # attributes of objects are only there
            missing = [one for one in re.split(r",\s*", listed[1]) if not re.search(rf"\b{re.escape(one)}\b", source)]
            assert not [one for one in missing if not hasattr(documented, one)], name


@pytest.mark.skipif(shutil.which("groff") is None, reason="there is no groff")
def test_the_manual_page_is_set_without_a_warning() -> None:
    words = ["groff", "-man", "-Tutf8", "-ww", "-rLL=100n", str(MANUAL)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "opensesh session revert" in done.stdout
