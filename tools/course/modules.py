"""The modules of a stage, read with `ast`: what they define and what they import.

Importing a module shows neither what its functions import later nor what stands under
`TYPE_CHECKING`; reading it shows both.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from course.stack import PACKAGE

TORCH_FREE = f"{PACKAGE}.torch_free"  # its MODULES lists the torch-free modules

_GIVEN = {"__doc__", "__file__", "__name__", "__package__", "__path__", "__spec__"}


@dataclass(frozen=True)
class Import:
    """One imported name. `name` is None for `import module`."""

    module: str
    name: str | None
    line: int
    is_typing: bool  # under `if TYPE_CHECKING`: never run
    is_lazy: bool  # in a function: not run when the module is imported
    is_guarded: bool  # in a `try` that handles ImportError


@dataclass
class Module:
    """One module: its imports, and the names that `from module import` finds."""

    name: str  # minisgl.kvcache.base
    path: str  # minisgl/kvcache/base.py
    tree: ast.Module
    imports: list[Import] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    typing_names: set[str] = field(default_factory=set)

    @property
    def is_package(self) -> bool:
        return self.path.endswith("/__init__.py")

    @property
    def package(self) -> str:
        """The package that relative imports start from."""
        return self.name if self.is_package else self.name.rpartition(".")[0]


@dataclass(frozen=True)
class Modules:
    """The modules of one stage by name, and what is wrong with its files."""

    by_name: Mapping[str, Module]
    faults: Sequence[str]

    @classmethod
    def of(cls, files: Mapping[str, bytes]) -> Modules:
        """Read every `.py` file of a stage; a file that is no Python is a fault."""
        by_name: dict[str, Module] = {}
        faults: list[str] = []
        for path, content in files.items():
            if not path.endswith(".py"):
                continue
            try:
                module = read_module(path, content)
            except SyntaxError as error:
                faults.append(f"{path}:{error.lineno} is no Python: {error.msg}")
                continue
            if other := by_name.get(module.name):
                faults.append(f"{path} and {other.path} are the same module")
            by_name[module.name] = module
        for path in sorted(_folders(files)):
            if f"{path}/__init__.py" not in files:
                faults.append(f"{path}/ has modules and no __init__.py")
        return cls(by_name, faults)

    def import_faults(self, third_party: set[str]) -> list[str]:
        """Imports that this stage cannot satisfy: `file:line what` each."""
        return [
            f"{module.path}:{item.line} {fault}"
            for module in self.by_name.values()
            for item in module.imports
            if (fault := self._fault(item, third_party))
        ]

    def torch_free(self) -> tuple[list[str], list[str]]:
        """The torch-free modules that this stage lists, and what is wrong with them."""
        listing = self.by_name.get(TORCH_FREE)
        if listing is None:
            return [], []
        names = _literal_strings(listing.tree, "MODULES")
        if names is None:
            return [], [f"{listing.path} must say MODULES = (…), names in quotes"]
        faults = [
            f"{listing.path} lists {name}, which this stage does not have"
            for name in names
            if name not in self.by_name
        ]
        for name in names:
            if name in self.by_name:
                faults += self._torch_free_faults(self.by_name[name], set(names))
        return [name for name in names if name in self.by_name], faults

    def _torch_free_faults(self, module: Module, listed: set[str]) -> Iterator[str]:
        parent = module.name.rpartition(".")[0]
        if parent and parent not in listed:
            yield f"{module.path} is torch-free, its package {parent} is not listed"
        for item in module.imports:
            # A package may load heavy modules on demand; never run is never loaded.
            if item.is_typing or (item.is_lazy and module.is_package):
                continue
            target = self._module_of(item)
            if target not in listed and not _is_standard(target):
                yield (
                    f"{module.path}:{item.line} imports {target}; a torch-free module "
                    "imports the standard library and torch-free modules only"
                )

    def _module_of(self, item: Import) -> str:
        """The module an import really loads: `from package import module`."""
        below = f"{item.module}.{item.name}"
        return below if item.name and below in self.by_name else item.module

    def _fault(self, item: Import, third_party: set[str]) -> str | None:
        top = item.module.partition(".")[0]
        if item.name == "*":
            return f"imports * from {item.module}; name what is needed"
        if not top:
            return "a relative import leaves the package"
        if top != PACKAGE:
            if _is_standard(top) or top in third_party or item.is_guarded:
                return None
            return f"imports {top}, which pyproject.toml does not declare"
        if item.module not in self.by_name:
            return f"imports {item.module}, which this stage does not have"
        if item.name is None or f"{item.module}.{item.name}" in self.by_name:
            return None
        module = self.by_name[item.module]
        if item.name in module.names | _GIVEN:
            return None
        if item.name in module.typing_names:
            if item.is_typing:
                return None
            return f"imports {item.name}, which {item.module} has for typing only"
        return f"imports {item.name}, which {item.module} does not define here"


def read_module(path: str, content: bytes) -> Module:
    """Parse one file of the package; SyntaxError when it is no Python."""
    tree = ast.parse(content, path)
    parts = path.removesuffix(".py").split("/")
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    module = Module(name, path, tree)
    _Reader(module).visit(tree)
    return module


def definition(
    files: Mapping[str, bytes], name: str, package: str = PACKAGE
) -> str | None:
    """The source text of `core.Req.complete_one` in a stage, decorators included.

    Functions, classes, and assigned names, in a module or a class; None when the stage
    has no such name.
    """
    parts = name.split(".")
    for split in range(len(parts) - 1, 0, -1):
        stem = "/".join([package, *parts[:split]])
        for path in (f"{stem}.py", f"{stem}/__init__.py"):
            if path in files:
                return _find(files[path].decode(), parts[split:])
    path = f"{package}/__init__.py"
    return _find(files[path].decode(), parts) if path in files else None


class _Reader(ast.NodeVisitor):
    """Fills in a module's imports, and its names as far as the module level goes."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.depth = 0  # functions around us
        self.is_inside = False  # a function or class is around us: no module level
        self.is_typing = False
        self.is_guarded = False

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._import(alias.name, None, node.lineno)
            self._define(alias.asname or alias.name.partition(".")[0])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or ""
        if node.level:
            package = self.module.package.split(".")
            base = package[: len(package) - node.level + 1]
            module = ".".join([*base, module] if module else base) if base else ""
        for alias in node.names:
            self._import(module, alias.name, node.lineno)
            self._define(alias.asname or alias.name)

    def visit_Call(self, node: ast.Call) -> None:
        """`import_module("minisgl.x")` is an import too."""
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        first = node.args[0] if node.args else None
        if name == "import_module" and isinstance(first, ast.Constant):
            self._import(str(first.value), None, node.lineno)
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._define(node.name)
        self._visit_all([*node.decorator_list, node.args, node.returns])
        with_depth, self.depth = self.depth, self.depth + 1
        self._visit_inside(node.body)
        self.depth = with_depth

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._visit_inside([node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._define(node.name)
        self._visit_all([*node.decorator_list, *node.bases, *node.keywords])
        self._visit_inside(node.body)

    def visit_If(self, node: ast.If) -> None:
        if not _is_type_checking(node.test):
            self.generic_visit(node)
            return
        before, self.is_typing = self.is_typing, True
        self._visit_all(node.body)
        self.is_typing = before
        self._visit_all(node.orelse)

    def visit_Try(self, node: ast.Try) -> None:
        before = self.is_guarded
        self.is_guarded = before or any(map(_handles_import_error, node.handlers))
        self._visit_all(node.body)
        self.is_guarded = before
        self._visit_all([*node.handlers, *node.orelse, *node.finalbody])

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self._define(node.id)

    def visit_ListComp(self, node: ast.AST) -> None:
        """The variables of a comprehension are its own."""
        self._visit_inside(list(ast.iter_child_nodes(node)))

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp

    def _visit_all(self, nodes: Sequence[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def _visit_inside(self, nodes: Sequence[ast.AST]) -> None:
        before, self.is_inside = self.is_inside, True
        self._visit_all(nodes)
        self.is_inside = before

    def _define(self, name: str) -> None:
        if not self.is_inside:
            names = self.module.typing_names if self.is_typing else self.module.names
            names.add(name)

    def _import(self, module: str, name: str | None, line: int) -> None:
        self.module.imports.append(
            Import(
                module,
                name,
                line,
                is_typing=self.is_typing,
                is_lazy=self.depth > 0,
                is_guarded=self.is_guarded,
            )
        )


def _is_standard(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


def _is_type_checking(test: ast.expr) -> bool:
    name = getattr(test, "attr", getattr(test, "id", ""))
    return name == "TYPE_CHECKING"


def _handles_import_error(handler: ast.ExceptHandler) -> bool:
    caught = handler.type
    kinds = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(
        isinstance(kind, ast.Name) and kind.id in ("ImportError", "ModuleNotFoundError")
        for kind in kinds
    )


def _literal_strings(tree: ast.Module, name: str) -> list[str] | None:
    """The strings of `name = (…)` at module level; None when it is not written so."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        if any(isinstance(t, ast.Name) and t.id == name for t in targets):
            try:
                value = ast.literal_eval(node.value)  # type: ignore[attr-defined]
            except (ValueError, TypeError):
                return None
            if isinstance(value, tuple | list) and all(
                isinstance(item, str) for item in value
            ):
                return list(value)
    return None


def _folders(files: Mapping[str, bytes]) -> set[str]:
    """Every folder that holds a module, and every folder above one."""
    folders = set()
    for path in files:
        parts = path.split("/")
        if path.endswith(".py"):
            folders |= {"/".join(parts[:n]) for n in range(1, len(parts))}
    return folders


def _find(source: str, parts: Sequence[str]) -> str | None:
    """The text of a qualified name in one file."""
    try:
        scope: ast.AST = ast.parse(source)
    except SyntaxError:
        return None
    found: list[ast.stmt] = []
    for part in parts:
        found = [s for s in _statements(scope) if part in _defined(s)]
        if not found:
            return None
        scope = found[-1]
    lines = source.splitlines()
    return "\n".join("\n".join(lines[_first(s) - 1 : s.end_lineno]) for s in found)


def _statements(scope: ast.AST) -> Iterator[ast.stmt]:
    """The statements of a module or class, also those inside `if` and `try`."""
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, ast.If | ast.Try | ast.ExceptHandler | ast.With):
            yield from _statements(child)
        elif isinstance(child, ast.stmt):
            yield child


def _defined(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = (n for target in targets for n in ast.walk(target))
        return {n.id for n in names if isinstance(n, ast.Name)}
    return set()


def _first(node: ast.stmt) -> int:
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(d.lineno for d in decorators)])
