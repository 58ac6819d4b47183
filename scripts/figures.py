"""Print the figures by which the code's form is judged: size, imports, single-use functions, call paths, names, words.

python scripts/figures.py            of the whole tree
python scripts/figures.py engine     sizes and names of one package, with the single-use functions by name
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import tokenize
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "opensesh"
WORDS = (
    r"told|ado|whoever|nobody|somebody|whatever|meant|heard|goes on with|house|rooms?"
    r"|(?<!there )is no(?! longer)|(?<!hugging )faces?"
    # Forms of the same idiom, counted so that one is not traded for the other.
    r"|go on with|going on with|went on with|gone on with|anybody|someone|whom"
)
LITERAL_WORDS = r"told|ado|whoever|nobody|somebody|whatever|meant|heard|goes on with|is no|house|rooms?|faces?"
"""The list that the target names, without exceptions."""
NAMES = ("place", "found", "each", "given", "held", "told", "said", "wanted")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def main(arguments: list[str]) -> int:
    package = arguments[0] if arguments else ""
    files = sorted((SOURCE / package).rglob("*.py")) if (SOURCE / package).is_dir() else [SOURCE / package]
    trees = {path: ast.parse(path.read_text()) for path in files}
    lines = {path: len(path.read_text().splitlines()) for path in files}
    print(f"modules                          {len(files)}")
    print(f"lines                            {sum(lines.values())}")
    print(
        f"lines of a module                median {statistics.median(lines.values()):.0f}, most {max(lines.values())}"
    )
    print(f"comment lines                    {100 * comment_lines(files) / sum(lines.values()):.1f} %")
    lengths = [end(node) - node.lineno + 1 for tree in trees.values() for node in functions(tree)]
    print(f"functions                        {len(lengths)}, median {statistics.median(lengths):.0f} lines")
    print(f"imports inside functions         {sum(map(local_imports, trees.values()))}")
    private, single = single_use(trees)
    print(f"private functions called once    {len(single)} of {private}, {100 * len(single) / max(private, 1):.0f} %")
    report_names(trees)
    report_words("source", files)
    if package:
        for path, name, count in single:
            print(f"  called once: {path.relative_to(SOURCE)}:{name} ({count} lines)")
        return 0
    report_words("documents", documents())
    with tempfile.TemporaryDirectory() as folder:
        for name in ("XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "OPENCODE_TEST_HOME"):
            os.environ[name] = folder
        print(f"a prompt with one tool call      {trace_prompt(Path(folder))}")
        print(f"a search                         {trace_search(Path(folder))}")
    return 0


def functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def end(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno


def comment_lines(files: list[Path]) -> int:
    count = 0
    for path in files:
        with path.open("rb") as file:
            count += sum(token.type == tokenize.COMMENT for token in tokenize.tokenize(file.readline))
    return count


def local_imports(tree: ast.AST) -> int:
    """Import statements that run when a function is called, not when its module is loaded."""
    found: set[int] = set()
    for function in functions(tree):
        found |= {id(node) for node in ast.walk(function) if isinstance(node, ast.Import | ast.ImportFrom)}
    return len(found)


def single_use(trees: dict[Path, ast.Module]) -> tuple[int, list[tuple[Path, str, int]]]:
    """How many private functions there are, and those that their module names once."""
    total, single = 0, list[tuple[Path, str, int]]()
    for path, tree in trees.items():
        uses = Counter(
            node.id if isinstance(node, ast.Name) else node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Name | ast.Attribute)
        )
        for node in functions(tree):
            if node.name.startswith("_") and not node.name.startswith("__"):
                total += 1
                if uses[node.name] == 1:
                    single.append((path, node.name, end(node) - node.lineno + 1))
    return total, single


def report_names(trees: dict[Path, ast.Module]) -> None:
    classes: dict[str, list[str]] = defaultdict(list)
    modules: dict[str, list[str]] = defaultdict(list)
    assigned: Counter[str] = Counter()
    for path, tree in trees.items():
        if path.stem not in ("__init__", "__main__"):
            modules[path.stem].append(str(path.relative_to(SOURCE)))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(str(path.relative_to(SOURCE)))
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in NAMES:
                assigned[node.id] += 1
            elif isinstance(node, ast.arg) and node.arg in NAMES:
                assigned[node.arg] += 1
    for title, names in (("class names used twice", classes), ("module names used twice", modules)):
        repeated = {name: places for name, places in sorted(names.items()) if len(places) > 1}
        print(f"{title:32} {len(repeated)}")
        for name, places in repeated.items():
            print(f"  {name}: {', '.join(places)}")
    print(f"variables named {'/'.join(NAMES)}: {sum(assigned.values())}  {dict(assigned.most_common())}")


def report_words(title: str, files: list[Path]) -> None:
    texts = [" ".join(prose(path).split()) for path in files]
    for name, words in (("words to avoid", WORDS), ("the same, literally", LITERAL_WORDS)):
        pattern = re.compile(rf"\b({words})\b", re.IGNORECASE)
        counts = Counter(match[1].lower() for text in texts for match in pattern.finditer(text))
        print(f"{f'{name}, {title}':32} {sum(counts.values())}  {dict(counts.most_common())}")


def prose(path: Path) -> str:
    """What a reader reads: all of a document; docstrings, comments and strings (help, errors) of a module."""
    if path.suffix != ".py":
        return path.read_text()
    with path.open("rb") as file:
        tokens = list(tokenize.tokenize(file.readline))
    return "\n".join(token.string for token in tokens if token.type in (tokenize.COMMENT, tokenize.STRING))


def documents() -> list[Path]:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    # Prompts and tool descriptions in the source are written for models.
    return [
        ROOT / name for name in tracked.splitlines() if name.endswith(".md") and not name.startswith(("tests/", "src/"))
    ]


class Trace:
    """Counts the functions of ours that are entered in its context, in every thread that starts after it is made.

    Threads are reused: one that started before the context would not be profiled if only the context began to.
    """

    def __init__(self) -> None:
        self.entered: set[tuple[str, str, int]] = set()
        self._is_on = False
        threading.setprofile(self._note)

    def __enter__(self) -> None:
        self._is_on = True
        sys.setprofile(self._note)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        self._is_on = False

    def __str__(self) -> str:
        unnamed = sum(name.endswith(">") for _, name, _ in self.entered)
        files = len({path for path, _, _ in self.entered})
        return f"{len(self.entered)} functions in {files} files ({unnamed} of them comprehensions and lambdas)"

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        # Bodies of modules and classes are not functions: they run when a module is loaded.
        is_function = bool(code.co_flags & inspect.CO_OPTIMIZED)
        if self._is_on and event == "call" and is_function and code.co_filename.startswith(str(SOURCE)):
            self.entered.add((code.co_filename, code.co_qualname, code.co_firstlineno))


def trace_prompt(folder: Path) -> Trace:
    """From ``engine.run`` to the outcome of a prompt with one tool call; opening the engine is not counted."""
    import opensesh

    trace = Trace()
    project = folder / "project"
    project.mkdir()
    prompt = 'CALL write {"filePath": "hello.txt", "content": "hello"}\n---\nSAY Done.'

    async def run() -> None:
        async with opensesh.open(directory=project, store=str(folder / "store"), permission=lambda _: "once") as engine:
            session = await engine.create(title="Trace")
            with trace:
                outcome = await engine.run(session.id, prompt, model="scripted/prompt")
            if outcome.kind != "answered":
                raise SystemExit(f"the prompt ended with {outcome}")

    asyncio.run(run())
    return trace


def trace_search(folder: Path) -> Trace:
    """A search in a store that the index does not know yet."""
    from opensesh import history

    trace = Trace()
    library = history.open(str(folder / "store"))
    with trace:
        results = library.search("hello")
    if not results.hits:
        raise SystemExit("the search found nothing")
    return trace


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
