"""What a learner starts from: the next stage, with the bodies left to write.

Three texts of one file meet here. `new` is the file at stage N, `old` the same file at
stage N-1, and `mine` the learner's own version of `old` (the same text when they start
from the reference). A function that chapter N

    adds      becomes a stub: signature, decorators and docstring, and a loud body;
    changes   keeps the body of `mine`, below a comment that says so;
    leaves    is `mine`.

Everything else (imports, fields, module level) is `new`. What `mine` has and `new`
lacks is carried over when it is the learner's own, or when a kept body needs it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from course.source import Definition, Function, Source, is_stub, statements

# Run by Python itself when a class is made, or by a debugger and by failing tests.
_ALWAYS_WHOLE = {"__init_subclass__", "__set_name__", "__new__", "__repr__", "__str__"}
# What runs when a class is called.
_MAKERS = {"__init__", "__post_init__"}


def skeleton(
    new: Mapping[str, bytes],
    old: Mapping[str, bytes],
    chapter: int,
    mine: Mapping[str, bytes] | None = None,
) -> dict[str, bytes]:
    """The files a learner starts chapter `chapter` with.

    `new` and `old` are the files of stage N and N-1 by path, `mine` the learner's own
    files for stage N-1 (without it they start from the reference). A file that the
    chapter deletes is not in the result; a file that only `mine` has is.
    """
    mine = old if mine is None else mine
    result = {p: data for p, data in mine.items() if p not in old and p not in new}
    whole = _needed_by_import(_sources(new))
    modules = {
        _dotted(path): _bound(source, "")
        for path, source in _sources({**result, **new}).items()
    }
    for path, data in new.items():
        if not path.endswith(".py"):
            result[path] = mine.get(path, data) if old.get(path) == data else data
        elif old.get(path) == data and path in mine:
            result[path] = mine[path]
        else:
            file = _File(
                new=Source(data.decode(), path),
                old=_source(old, path),
                mine=_source(mine, path),
                chapter=chapter,
                whole=whole[path],
                modules=modules,
            )
            result[path] = file.text().encode()
    return result


def unwritten(files: Mapping[str, bytes], chapter: int) -> list[str]:
    """Names of the stubs of `chapter` that are still in `files`, in order.

    A name is the module below `minisgl` and the qualified name, as the manifest has it.
    """
    mark = f"chapter {chapter}: "
    return [
        f"{module_of(path)}.{function.name}".lstrip(".")
        for path, source in sorted(_sources(files).items())
        for function in source.functions()
        if any(text.startswith(mark) for text in _raised_texts(function.node.body))
    ]


def stub_names(
    new: Mapping[str, bytes], old: Mapping[str, bytes], chapter: int
) -> tuple[list[str], list[str]]:
    """Names of what the chapter adds (stubs) and of what it changes, in file order."""
    added = unwritten(skeleton(new, old, chapter), chapter)
    changed = []
    for path, source in sorted(_sources(new).items()):
        before = _source(old, path)
        known = before.by_key() if before else {}
        changed += [
            f"{module_of(path)}.{function.name}".lstrip(".")
            for function in source.functions()
            if function.key in known and function.text != known[function.key].text
        ]
    return added, changed


def _dotted(path: str) -> str:
    return f"minisgl.{module_of(path)}".rstrip(".")


def module_of(path: str) -> str:
    """`minisgl/kvcache/base.py` is the module `kvcache.base`; the package itself ""."""
    parts = path.removesuffix(".py").split("/")[1:]
    return ".".join(parts[:-1] if parts[-1:] == ["__init__"] else parts)


@dataclass
class _File:
    """One file: the edits that turn `new` into what the learner gets.

    `whole` names the functions that keep their body, `modules` what each module of the
    result binds. `kept` collects the older text that is in the result.
    """

    new: Source
    old: Source | None
    mine: Source | None
    chapter: int
    whole: set[str]
    modules: Mapping[str, set[str]]
    kept: list[str] = field(default_factory=list)

    def text(self) -> str:
        lines = list(self.new.lines)
        edits = [edit for f in self.new.functions() if (edit := self._edit(f))]
        edits += self._carried()
        edits.sort(key=lambda edit: edit[:2])
        for first, last, text in reversed(edits):
            lines[first - 1 : last] = text.rstrip("\n").split("\n")
        result = "".join(f"{line}\n" for line in lines)
        ast.parse(result)  # ours to get right, whatever the three texts are
        return result

    def _edit(self, function: Definition) -> tuple[int, int, str] | None:
        old = self.old.by_key().get(function.key) if self.old else None
        mine = self.mine.by_key().get(function.key) if self.mine else None
        if old and old.text == function.text:
            text = mine.indented(function.indent) if mine else function.text
        elif mine or old:
            text = self._changed(function, mine or old, added=old is None)
        elif function.name in self.whole or is_stub(function.node.body):
            return None
        else:
            return (function.first, function.last, _stub(function, self.chapter))
        if text == function.text:
            return None
        self.kept.append(text)
        return function.first, function.last, text

    def _changed(self, new: Definition, kept: Definition, added: bool) -> str:
        verb = "adds a function of this name" if added else "changes this function"
        comment = [f"Chapter {self.chapter} {verb}."]
        if new.signature != kept.signature:
            comment[0] = f"Chapter {self.chapter} {verb}. Its signature there:"
            comment += [f"    {line}" for line in new.header.split("\n")]
        margin = " " * new.indent
        marks = "".join(f"{margin}# {line}\n" for line in comment)
        return marks + _with_docstring(new, kept)

    def _carried(self) -> list[tuple[int, int, str]]:
        """Insertions of what `mine` has and `new` lacks, at the end of its scope."""
        if self.mine is None:
            return []
        missing = [m for m in _missing(self.mine, self.new) if m.resolves(self.modules)]
        known = {m.key for m in _missing(self.old, self.new)} if self.old else set()
        carried = [m for m in missing if m.key not in known]
        rest = [m for m in missing if m not in carried]
        used = _identifiers(self.kept + [m.text for m in carried])
        while more := [m for m in rest if m.name in used]:
            carried += more
            rest = [m for m in rest if m not in more]
            used |= _identifiers(m.text for m in more)
        removed = f"# Chapter {self.chapter} removes this; older code here uses it."
        return [
            m.insertion(self.new, removed if m.key in known else "")
            for m in sorted(carried, key=lambda m: (-m.depth, missing.index(m)))
        ]


@dataclass(frozen=True)
class _Missing:
    """A binding of one file that another lacks; its scope is a class, or ""."""

    scope: str
    name: str
    text: str
    imported: ast.Import | ast.ImportFrom | None = None

    @property
    def key(self) -> tuple[str, str]:
        return self.scope, self.name

    @property
    def depth(self) -> int:
        """Classes around it: what ends on the same line is closed from the inside."""
        return len(self.scope.split(".")) if self.scope else 0

    def resolves(self, modules: Mapping[str, set[str]]) -> bool:
        """Whether an import of the package still finds its module and its name."""
        if not isinstance(self.imported, ast.ImportFrom):
            return True
        module, name = self.imported.module or "", self.imported.names[0].name
        if module.split(".")[0] != "minisgl":
            return True
        return name in modules.get(module, ()) or f"{module}.{name}" in modules

    def insertion(self, into: Source, comment: str) -> tuple[int, int, str]:
        """An edit that adds the binding behind the imports, or behind its scope."""
        if self.imported:
            line = _last_import(into) + 1
            return line, line - 1, self.text
        owner = next((d for d in into.definitions if d.name == self.scope), None)
        line = (owner.last if owner else len(into.lines)) + 1
        margin = " " * (owner.node.body[0].col_offset if owner else 0)
        space = "\n" if owner else "\n\n"
        lines = [*filter(None, [comment]), *self.text.rstrip("\n").split("\n")]
        body = "".join(f"{margin}{text}".rstrip() + "\n" for text in lines)
        return line, line - 1, space + body


def _missing(have: Source, lack: Source) -> Iterator[_Missing]:
    """Bindings of `have`, of its module and of classes both have, not in `lack`."""
    classes = {d.name for d in lack.definitions if not d.is_function}
    for scope, tree in [("", have.tree), *_class_trees(have, classes)]:
        there = _bound(lack, scope)
        for node in ast.iter_child_nodes(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield from _missing_imports(node, scope, there)
            elif names := _names_bound(node) - there:
                text = _node_text(have, node)
                yield _Missing(scope, min(names), text)


def _class_trees(source: Source, names: set[str]) -> list[tuple[str, ast.AST]]:
    return [
        (d.name, d.node)
        for d in source.definitions
        if not d.is_function and d.name in names
    ]


def _missing_imports(
    node: ast.Import | ast.ImportFrom, scope: str, there: set[str]
) -> Iterator[_Missing]:
    for alias in node.names:
        name = alias.asname or alias.name.partition(".")[0]
        if name in there:
            continue
        single: ast.Import | ast.ImportFrom = ast.Import([alias])
        if isinstance(node, ast.ImportFrom):
            single = ast.ImportFrom(node.module, [alias], node.level)
        yield _Missing(scope, name, ast.unparse(single) + "\n", single)


def _bound(source: Source, scope: str) -> set[str]:
    trees = dict(_class_trees(source, {scope})) if scope else {"": source.tree}
    bound: set[str] = set()
    for node in statements(trees[scope]):
        bound |= _names_bound(node)
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {a.asname or a.name.partition(".")[0] for a in node.names}
    return bound


def _names_bound(node: ast.AST) -> set[str]:
    if isinstance(node, Function | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Assign):
        return {n.id for t in node.targets for n in ast.walk(t) if _is_name(n)}
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return {node.target.id}
    return set()


def _is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Name)


def _node_text(source: Source, node: ast.AST) -> str:
    """The node's lines, with decorators, moved to the margin."""
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(d.lineno for d in decorators)])
    lines = source.between(first, node.end_lineno).split("\n")
    return "\n".join(
        line[node.col_offset :] if not line[: node.col_offset].strip() else line
        for line in lines
    )


def _last_import(source: Source) -> int:
    """Line of the last import of the module, or of its docstring, or 0."""
    lines = [0]
    for index, node in enumerate(source.tree.body):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Import | ast.ImportFrom) or (index == 0 and is_text):
            lines.append(node.end_lineno)
    return max(lines)


def _stub(function: Definition, chapter: int) -> str:
    """The function with its body replaced by an error that names the task."""
    margin = " " * _body_indent(function)
    header = function.source.between(function.first, function.header_last)
    if function.is_one_line:
        before = function.source.between(function.first, function.node.lineno - 1)
        indent = " " * function.indent
        header = before + "".join(f"{indent}{n}\n" for n in function.header.split("\n"))
    doc = function.docstring
    if doc and not function.is_one_line:
        header += function.source.between(function.header_last + 1, doc.end_lineno)
    error = f'raise NotImplementedError("chapter {chapter}: {function.name}")'
    return f"{header}{margin}{error}\n"


def _body_indent(function: Definition) -> int:
    if function.is_one_line:
        return function.indent + 4
    return function.node.body[0].col_offset


def _with_docstring(new: Definition, kept: Definition) -> str:
    """`kept`, with the docstring of `new`: what the function is to become."""
    one_line = kept.is_one_line or new.is_one_line
    if new.docstring is None or one_line or kept.indent != new.indent:
        return kept.indented(new.indent)
    source = kept.source
    start = kept.docstring.end_lineno if kept.docstring else kept.header_last
    doc = new.source.between(new.docstring.lineno, new.docstring.end_lineno)
    head = source.between(kept.first, kept.header_last)
    return head + doc + source.between(start + 1, kept.last)


def _needed_by_import(sources: Mapping[str, Source]) -> dict[str, set[str]]:
    """By path, the functions that run when the modules are imported: kept whole.

    Found by name: what decorators, defaults, class bodies and the module level call,
    and what those functions call in turn. One function too many stays whole; one too
    few would make the module fail before the learner has written anything.
    """
    calls = {name for s in sources.values() for name in _calls_at_import(s)}
    whole: dict[str, set[str]] = {path: set() for path in sources}
    while True:
        found = [
            (path, function)
            for path, source in sources.items()
            for function in source.functions()
            if function.name not in whole[path] and _is_called(function, calls)
        ]
        if not found:
            return whole
        for path, function in found:
            whole[path].add(function.name)
            if function.node.name not in _ALWAYS_WHOLE:
                owner = function.name.rpartition(".")[0]
                calls |= set(_called_names(function.node.body, owner))


def _is_called(function: Definition, calls: set[str]) -> bool:
    """`calls` has plain names, `Class.method`, and `.method` of some package object."""
    owner, _, name = function.name.rpartition(".")
    if name in _ALWAYS_WHOLE:
        return True
    if not owner:
        return name in calls
    makes = name in _MAKERS and owner.rpartition(".")[2] in calls
    return makes or f"{owner}.{name}" in calls or f".{name}" in calls


def _calls_at_import(source: Source) -> Iterator[str]:
    ours = _bound(source, "") - _foreign(source)
    for node in _import_time_nodes(source.tree):
        called = node.func if isinstance(node, ast.Call) else node
        if isinstance(called, ast.Name):
            yield called.id
        elif isinstance(called, ast.Attribute):
            root = called.value
            if isinstance(root, ast.Name) and root.id in ours:
                yield f".{called.attr}"


def _foreign(source: Source) -> set[str]:
    """Names that imports of other packages bind."""
    return {
        alias.asname or alias.name.partition(".")[0]
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if not (getattr(node, "module", None) or alias.name).startswith("minisgl")
    }


def _import_time_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Calls and decorators that run on import: all but what is inside functions."""
    for node in ast.iter_child_nodes(tree):
        if _is_main_guard(node) or isinstance(node, ast.Lambda):
            continue
        if isinstance(node, ast.Call):
            yield node
        if isinstance(node, Function | ast.ClassDef):
            yield from node.decorator_list
        if isinstance(node, Function):
            for part in [*node.decorator_list, *node.args.defaults]:
                yield from _calls_in(part)
            for part in filter(None, node.args.kw_defaults):
                yield from _calls_in(part)
        else:
            yield from _import_time_nodes(node)


def _calls_in(tree: ast.AST) -> Iterator[ast.AST]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _is_main_guard(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)


def _called_names(body: Iterable[ast.stmt], owner: str) -> Iterator[str]:
    for node in (n for statement in body for n in ast.walk(statement)):
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Name):
            yield called.id
        elif isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
            yield f"{owner}.{called.attr}"  # self.helper() of the same class


def _raised_texts(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            for arg in node.exc.args:
                if isinstance(arg, ast.Constant) and isinstance(arg.value, str):
                    yield arg.value


def _identifiers(texts: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for text in texts:
        for node in ast.walk(ast.parse(_dedent(text))):
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
    return found


def _dedent(text: str) -> str:
    """`text` as a block of its own, whatever depth it comes from."""
    return "if True:\n" + text if text[:1] == " " else text


def _sources(files: Mapping[str, bytes]) -> dict[str, Source]:
    return {
        path: Source(data.decode(), path)
        for path, data in files.items()
        if path.endswith(".py")
    }


def _source(files: Mapping[str, bytes], path: str) -> Source | None:
    return Source(files[path].decode(), path) if path in files else None
