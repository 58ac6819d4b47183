"""The mutations of a module for ``mutants.py``: one change at a time.

Annotations, docstrings, decorators, messages of exceptions and options of a class are not changed.
"""

from __future__ import annotations

import ast
import copy
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

Item = TypeVar("Item")

SKIPPED_FIELDS = {"annotation", "returns", "decorator_list", "type_comment"}
COMPARE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
}  # fmt: skip


class Mutant(NamedTuple):
    """One change: line, kind, the changed module, and the statement before and after."""

    line: int
    kind: str
    source: str
    before: str
    after: str


class NodePosition(NamedTuple):
    """The position of a node in the tree."""

    parent: ast.AST
    field: str
    at: int | None
    statement: ast.stmt


def mutants(text: str) -> Iterator[Mutant]:
    """Yield every mutant of a module, by line."""
    tree = ast.parse(text)
    for position, node in list(_positions(tree, None)):
        for kind, changed in _changes(node, position):
            before = ast.unparse(position.statement)
            _put(position, changed)
            source, after = (
                ast.unparse(tree),
                ast.unparse(changed if node is position.statement else position.statement),
            )
            _put(position, node)
            if after == before:
                continue  # no difference, as with a float too large to change by one
            yield Mutant(getattr(node, "lineno", position.statement.lineno), kind, source, before, after)


def _put(position: NodePosition, node: ast.AST) -> None:
    if position.at is None:
        setattr(position.parent, position.field, node)
    else:
        getattr(position.parent, position.field)[position.at] = node


def _positions(parent: ast.AST, statement: ast.stmt | None) -> Iterator[tuple[NodePosition, ast.AST]]:
    for field, value in ast.iter_fields(parent):
        if field in SKIPPED_FIELDS or (isinstance(parent, ast.ClassDef) and field in ("keywords", "bases")):
            continue
        nodes: list[tuple[int | None, Any]] = [(None, value)]
        if isinstance(value, list):
            nodes = list(enumerate(cast("list[Any]", value)))
        for at, node in nodes:
            if not isinstance(node, ast.AST) or _is_left_alone(node):
                continue
            holder = node if isinstance(node, ast.stmt) else statement
            if holder is not None:
                yield NodePosition(parent, field, at, holder), node
            yield from _positions(node, holder)


def _is_left_alone(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom():
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.Assign(targets=[ast.Name(id="__all__" | "TYPE_CHECKING")]):
            return True
        case ast.Call(func=ast.Name(id="cast" | "TypeVar")):
            return True
        case _:
            return False


def _changes(node: ast.AST, position: NodePosition) -> Iterator[tuple[str, ast.AST]]:
    yield from _changed_statement(node)
    yield from _changed_block(node)
    if isinstance(node, ast.Constant):
        yield from _changed_constant(node.value, position)
    elif isinstance(node, ast.expr | ast.comprehension):
        yield from _changed_operator(node)
        yield from _changed_choice(node)


def _changed_statement(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.Return(value=value) if not isinstance(value, ast.Constant | None):
            yield "return", ast.Return(ast.Constant(None))
        case ast.Expr() | ast.Raise() | ast.AugAssign() | ast.Delete():
            yield "removed", ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield "removed", ast.Pass()
        case ast.Break():
            yield "break", ast.Continue()
        case ast.Continue():
            yield "break", ast.Break()
        case _:
            return


def _changed_block(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.If() | ast.While():
            yield "condition", _with(node, test=ast.Constant(False))
            if isinstance(node, ast.If):
                yield "condition", _with(node, test=ast.Constant(True))
        case ast.For():
            yield "loop", _with(node, iter=ast.Tuple([], ast.Load()))
        case ast.With() if all(item.optional_vars is None for item in node.items):
            yield "with", ast.If(ast.Constant(True), node.body, [])
        case ast.Try(finalbody=[_, *_]):
            yield "finally", _with(node, finalbody=[ast.Pass()])
        case ast.ExceptHandler(type=caught):
            yield "except", _with(node, body=[ast.Raise()])
            if isinstance(caught, ast.Tuple):
                for rest in _without_one(caught.elts):
                    yield "except", _with(node, type=ast.Tuple(rest, ast.Load()))
        case ast.match_case(guard=guard) if guard is not None:
            yield "condition", _with(node, guard=None)
        case _:
            return


def _changed_operator(node: ast.expr | ast.comprehension) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.Compare(ops=ops):
            for at, operator in enumerate(ops):
                yield "comparison", _with(node, ops=[*ops[:at], COMPARE[type(operator)](), *ops[at + 1 :]])
        case ast.BoolOp(values=values):
            for rest in _without_one(values):
                yield "and/or", rest[0] if len(rest) == 1 else _with(node, values=rest)
        case ast.UnaryOp(operand=operand):
            yield "sign", operand
        case ast.BinOp(op=operator) if type(operator) in ARITHMETIC:
            yield "arithmetic", _with(node, op=ARITHMETIC[type(operator)]())
        case _:
            return


def _changed_choice(node: ast.expr | ast.comprehension) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.IfExp(body=body, orelse=orelse):
            yield "condition", body
            yield "condition", orelse
        case ast.Slice(lower=lower, upper=upper):
            if lower is not None:
                yield "slice", _with(node, lower=None)
            if upper is not None:
                yield "slice", _with(node, upper=None)
        case ast.Call(keywords=keywords):
            for rest in _without_one(keywords):
                yield "argument", _with(node, keywords=rest)
        case ast.comprehension(ifs=[_, *_]):
            yield "condition", _with(node, ifs=[])
        case _:
            return


def _without_one(items: list[Item]) -> Iterator[list[Item]]:
    for at in range(len(items)):
        yield items[:at] + items[at + 1 :]


def _changed_constant(value: object, position: NodePosition) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(position.statement, ast.Raise) or isinstance(position.parent, (ast.MatchValue, ast.FormattedValue)):
        return
    match value:
        case bool():
            yield "constant", ast.Constant(not value)
        case int() | float():
            yield "constant", ast.Constant(value + 1)
        case str():
            yield "constant", ast.Constant(value + "XX")
        case bytes():
            yield "constant", ast.Constant(value + b"XX")
        case _:
            return


def _with(node: ast.AST, **fields: object) -> ast.AST:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed
