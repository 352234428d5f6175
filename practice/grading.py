"""The grading core: runs the tests of a problem on an answer and says what was found.

The command line and the page in the browser use this one file unchanged, so it needs
only the standard library. `run` takes sources as text and returns a result as plain
data. A problem's `tests.py` uses the names of `__all__`.

An answer is somebody else's program in our own interpreter. So nothing it returns is
compared before it is copied to plain data, no verdict is read from printed text, and
what it replaced in modules that are not its own is found out and put back.
"""

from __future__ import annotations

import ast
import builtins
import gc
import importlib
import importlib.util
import linecache
import os
import random
import sys
import time
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any, NoReturn

__all__ = ["Check", "NotApplicable", "draw_table", "draw_tree", "run", "test"]

ANSWER_FILE = "answer.py"  # the name of the answer in tracebacks
TESTS_FILE = "tests.py"
ANSWER_MODULE = "answer"
TESTS_MODULE = "<tests>"  # no import statement can name it
LOADING = "loading your answer"  # what runs before the first test

OUTPUT_LIMIT = 4_000  # characters kept of what one test prints
TEXT_LIMIT = 2_000  # characters of one value in a message
DEPTH_LIMIT = 100  # levels of a value that is compared
SIZE_LIMIT = 1_000_000  # items of a value that is compared
REPLAY_LIMIT = 2_000  # replays of an operation list while it shrinks
SHRINK_SECONDS = 2.0

# Standard modules that answers, tests and the engine share: an answer that replaces a
# function of one of them is rejected.
SHARED_MODULES = (
    "abc",
    "array",
    "bisect",
    "builtins",
    "collections",
    "collections.abc",
    "contextlib",
    "copy",
    "dataclasses",
    "enum",
    "functools",
    "heapq",
    "itertools",
    "json",
    "json.encoder",
    "math",
    "operator",
    "os",
    "random",
    "string",
    "time",
    "typing",
)

# Modules beside this one that hold what the tests of several problems share. Models of
# what is to be written are among it, so an answer can neither import nor change them.
WORLDS = ("radix_world",)

_clock = time.perf_counter
_NOTHING = object()


# what a problem's tests.py uses


class NotApplicable(Exception):
    """Raised by an expected world: this operation makes no sense here, leave it out."""


class _Failed(BaseException):
    """A check did not hold. No `except Exception` on the way may swallow it."""

    def __init__(self, failure: dict[str, Any]) -> None:
        super().__init__()
        self.failure = failure


class _Test:
    def __init__(self, name: str, example: bool, function: Callable[..., None]) -> None:
        self.name = name
        self.example = example
        self.function = function


_registered: list[_Test] = []


def test(
    name: str, *, example: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register `function(answer, check)` as a test; `example` ones are shown upfront.

    `name` is a sentence that says what the answer does: "gives pages out in order".
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        if any(known.name == name for known in _registered):
            raise ValueError(f"two tests are called {name!r}")
        _registered.append(_Test(name, example, function))
        return function

    return register


class Check:
    """What a test uses to compare. Every call counts; the first that fails ends it."""

    def __init__(self, guard: Callable[[], None], found: Callable[..., None]) -> None:
        self.executed = 0
        self._guard = guard  # raises when the answer replaced part of the judge
        self._found = found  # told of a failure before it is shrunk

    def equal(
        self,
        actual: object,
        expected: object,
        *,
        call: str,
        look: str,
        draw: Callable[[Any], str] | None = None,
    ) -> None:
        """`actual` is plain data of exactly the types and values of `expected`.

        `call` is what was called, in Python; `look` one thing to look at. `draw` turns
        a value into a picture, shown for both.
        """
        self._count()
        wanted = copied(expected)
        got, fault = _copied_or_fault(actual, wanted)
        if fault is not None:
            _fail(call, show(wanted), fault, look)
        if canonical(wanted) == canonical(got):
            return
        _fail(
            call,
            show(wanted),
            _against(got, wanted),
            look,
            expected_drawing=_drawing(draw, wanted),
            actual_drawing=_drawing(draw, got),
        )

    def true(
        self, condition: object, *, call: str, expected: Any, actual: Any, look: str
    ) -> None:
        """`condition` is exactly True.

        `expected` and `actual` are sentences or plain data.
        """
        self._count()
        if condition is not True:
            _fail(call, _sentence(expected), _sentence(actual), look)

    def close(
        self, actual: object, expected: float, *, tolerance: float, call: str, look: str
    ) -> None:
        """`actual` is a float, at most `tolerance` away from `expected`."""
        self._count()
        wanted = f"{show(expected)}, give or take {show(tolerance)}"
        got, fault = _copied_or_fault(actual, expected)
        if fault is None and type(got) is not float:
            fault = _against(got, expected)
        if fault is not None:
            _fail(call, wanted, fault, look)
        if got != expected and not abs(got - expected) <= tolerance:
            _fail(call, wanted, show(got), look)

    def raises(
        self,
        errors: type[BaseException] | tuple[type[BaseException], ...],
        function: Callable[[], object],
        *,
        call: str,
        look: str,
        mentions: Sequence[str] = (),
    ) -> None:
        """`function()` raises one of `errors`, with all of `mentions` in its text."""
        self._count()
        allowed = errors if isinstance(errors, tuple) else (errors,)
        wanted = "an error: " + " or ".join(error.__name__ for error in allowed)
        if mentions:
            wanted += " with " + " and ".join(map(repr, mentions)) + " in its text"
        try:
            result = function()
        except (RecursionError, MemoryError, _Replaced):
            raise
        except BaseException as error:
            text = _error_text(error)
            bases = _bases(type(error))
            if not any(kind in bases for kind in allowed):
                _fail(call, wanted, _as_outcome(error), look)
            if any(mention not in text for mention in mentions):
                _fail(call, wanted, f"an error: {_summary(error)}", look)
            return
        try:
            got = show(copied(result))
        except NotPlain as fault:
            got = _a(fault.kind)
        _fail(call, wanted, f"no error, it returned {got}", look)

    def operations(
        self,
        operations: Iterable[tuple[Any, ...]],
        *,
        expected: Callable[[], Any],
        actual: Callable[[], Any],
        look: str,
        draw: Callable[[Any], str] | None = None,
    ) -> None:
        """A fresh `actual()` does what a fresh `expected()` does, step by step.

        An operation is a tuple, `("insert", [1, 2])`, and calls the worlds' method of
        that name. What it returns is compared, or which error it raises, and then what
        `state()` returns, if the worlds have one. One check per operation. A list that
        shows a difference is shrunk, and the failure shows the smallest one found.
        """
        steps = list(operations)
        difference = _replay(steps, expected, actual, self._count)
        if difference is None:
            return
        self._found(_operations_failure(steps, difference, look, draw))
        steps, difference = _shrink(steps, difference, expected, actual)
        raise _Failed(_operations_failure(steps, difference, look, draw))

    def _count(self) -> None:
        self._guard()
        self.executed += 1


def draw_tree(
    root: Any, children: Callable[[Any], Iterable[Any]], label: Callable[[Any], str]
) -> str:
    """A tree as text, one line a node, however deep it is."""
    lines = []
    waiting = [(root, "", "")]
    while waiting:
        node, first, rest = waiting.pop()
        lines.append(f"{first}{label(node)}")
        below = list(children(node))
        for at, child in reversed(list(enumerate(below))):
            last = at == len(below) - 1
            branch, bar = ("└─ ", "   ") if last else ("├─ ", "│  ")
            waiting.append((child, rest + branch, rest + bar))
    return "\n".join(lines)


def draw_table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table as text: columns as wide as their widest cell, numbers to the right."""
    body = [list(row) for row in rows]
    cells = [[str(cell) for cell in row] for row in [list(headers), *body]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    right = [
        all(type(row[at]) in (int, float) for row in body) and bool(body)
        for at in range(len(headers))
    ]
    cells.insert(1, ["─" * width for width in widths])
    lines = []
    for row in cells:
        padded = [
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


# plain data


class NotPlain(Exception):
    """A value is not plain data: `kind` is the type that is in it, `place` where."""

    def __init__(self, kind: str, place: str) -> None:
        super().__init__(kind, place)
        self.kind = kind
        self.place = place


_ATOMS = (type(None), bool, int, float, str, bytes)
_SEQUENCES = (list, tuple)
_SETS = (set, frozenset)


def copied(value: Any) -> Any:
    """A copy of plain data that shares nothing with it.

    Plain data are None, bool, int, float, str, bytes, list, tuple, dict, set, frozenset
    and array, of exactly these types at every level. Raises NotPlain.
    """
    left = [SIZE_LIMIT]
    return _copied(value, "", 0, left)


def _copied(value: Any, place: str, depth: int, left: list[int]) -> Any:
    kind = type(value)
    left[0] -= 1
    if left[0] < 0:
        raise NotPlain(f"value of more than {SIZE_LIMIT:,} items", "")
    if kind in _ATOMS:
        return value
    if kind is array:
        left[0] -= len(value)
        return array(value.typecode, value)
    if depth == DEPTH_LIMIT:
        raise NotPlain(f"value nested more than {DEPTH_LIMIT} levels deep", "")
    depth += 1
    if kind in _SEQUENCES:
        items = [
            _copied(item, f"{place}[{at}]", depth, left)
            for at, item in enumerate(list(value))
        ]
        return items if kind is list else tuple(items)
    if kind in _SETS:
        return kind([_copied(item, f"{place}{{…}}", depth, left) for item in value])
    if kind is dict:
        pairs = {}
        for key, item in list(value.items()):
            key = _copied(key, f"{place} keys", depth, left)
            at = f"{place}[{show(key, 40)}]"
            pairs[key] = _copied(item, at, depth, left)
        return pairs
    raise NotPlain(_type_name(kind), place)


def canonical(value: Any) -> Any:
    """A form of plain data in which equal means: the same types and the same values.

    NaN equals nothing, itself included. Dictionaries and sets have no order.
    """
    kind = type(value)
    if kind is float and value != value:
        return object()
    if kind in _ATOMS:
        return kind, value
    if kind is array:
        return kind, value.typecode, value.tobytes()
    if kind in _SEQUENCES:
        return kind, tuple([canonical(item) for item in value])
    if kind in _SETS:
        return kind, frozenset([canonical(item) for item in value])
    pairs = [(canonical(key), canonical(item)) for key, item in value.items()]
    return kind, frozenset(pairs)


def show(value: Any, limit: int = TEXT_LIMIT) -> str:
    """Plain data as text, sets in order, the middle of long text left out."""
    return _clip(_shown(value), limit)


def _shown(value: Any) -> str:
    kind = type(value)
    if kind is list:
        return f"[{', '.join(map(_shown, value))}]"
    if kind is tuple:
        return f"({', '.join(map(_shown, value))}{',' * (len(value) == 1)})"
    if kind in _SETS:
        inside = f"{{{', '.join(sorted(map(_shown, value)))}}}" if value else ""
        return inside if kind is set and value else f"{kind.__name__}({inside})"
    if kind is dict:
        pairs = [f"{_shown(key)}: {_shown(item)}" for key, item in value.items()]
        return f"{{{', '.join(pairs)}}}"
    if kind is int and value.bit_length() > 10_000:
        return f"(an int of {value.bit_length():,} bits)"  # Python refuses to print it
    return repr(value)


def _clip(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]} … {len(text) - 2 * half:,} characters … {text[-half:]}"


def _sentence(value: Any) -> str:
    return _clean(value) if type(value) is str else show(copied(value))


def _copied_or_fault(value: Any, wanted: Any) -> tuple[Any, str | None]:
    """The copy of a value of the answer; or why there is none, for people."""
    try:
        return copied(value), None
    except NotPlain as fault:
        if fault.place:
            return None, f"{_a(fault.kind)} at {fault.place}"
        return None, f"{_a(fault.kind)}, not {_a(type(wanted).__name__)}"


def _against(got: Any, wanted: Any) -> str:
    """The value, with the types where they are the difference."""
    if type(got) is type(wanted):
        return show(got) + _first_difference(got, wanted)
    return f"{show(got)} ({_a(type(got).__name__)}, not {_a(type(wanted).__name__)})"


def _first_difference(got: Any, wanted: Any) -> str:
    """Where two sequences or dictionaries part, if they are long."""
    if type(got) not in (list, tuple, dict, array) or len(show(got)) < 60:
        return ""
    if len(got) != len(wanted) and type(got) is not dict:
        lengths = f"{len(got)} items, expected {len(wanted)}"
    else:
        lengths = ""
    keys = list(wanted) if type(got) is dict else range(min(len(got), len(wanted)))
    for key in keys:
        if type(got) is dict and key not in got:
            return f"\nfirst difference: {show(key, 200)} is missing"
        if canonical(got[key]) != canonical(wanted[key]):
            values = f"{show(got[key], 200)}, expected {show(wanted[key], 200)}"
            return f"\nfirst difference: [{show(key, 200)}] is {values}"
    return f"\nfirst difference: {lengths}" if lengths else ""


def _a(name: str) -> str:
    if name == "NoneType":
        return "None"
    return f"{'an' if name[:1] in 'aeiouAEIO' else 'a'} {name}"


def _type_name(kind: type) -> str:
    name = type.__dict__["__name__"].__get__(kind)
    for plain in (*_ATOMS, list, tuple, dict, set, array):
        if plain in _bases(kind):
            return f"{name} (a subclass of {plain.__name__})"
    return name


def _bases(kind: type) -> tuple[type, ...]:
    """The class and what it inherits from, whatever its metaclass says."""
    return type.__dict__["__mro__"].__get__(kind)


def _clean(text: str) -> str:
    """Text that any terminal can print: no control characters, no lone surrogates."""
    if text.isprintable():
        return text
    return "".join(
        [
            char if char.isprintable() or char in "\n\t" else ascii(char)[1:-1]
            for char in text
        ]
    )


def _drawing(draw: Callable[[Any], str] | None, thing: Any) -> str | None:
    """A picture is a help: if the answer's state cannot be drawn, there is none."""
    if draw is None:
        return None
    try:
        text = draw(thing)
    except Exception as error:
        return f"(cannot be drawn: {_summary(error)})"
    return _clip(_clean(text), 4 * TEXT_LIMIT) if type(text) is str else None


def _fail(
    call: str,
    expected: str,
    actual: str,
    look: str,
    *,
    operations: list[str] | None = None,
    expected_drawing: str | None = None,
    actual_drawing: str | None = None,
) -> NoReturn:
    raise _Failed(
        {
            "call": call,
            "expected": expected,
            "actual": actual,
            "look": look,
            "operations": operations,
            "expected_drawing": expected_drawing,
            "actual_drawing": actual_drawing,
        }
    )


# operation lists


_STATE = ("state",)


class _Difference:
    """The first step at which two worlds part, and the worlds behind it."""

    def __init__(
        self,
        at: int,
        expected: str,
        actual: str,
        worlds: tuple[Any, Any],
        skipped: list[int],
    ) -> None:
        self.at = at
        self.expected = expected
        self.actual = actual
        self.worlds = worlds
        self.skipped = skipped  # steps that were not applicable


def _replay(
    steps: Sequence[tuple[Any, ...]],
    expected: Callable[[], Any],
    actual: Callable[[], Any],
    count: Callable[[], None] = lambda: None,
) -> _Difference | None:
    """Run a list in two fresh worlds; None if they agree all the way."""
    ours, theirs = expected(), actual()
    has_state = hasattr(ours, "state")
    skipped = []
    for at, step in enumerate(steps):
        count()
        wanted = _outcome(ours, step)
        if wanted is None:
            skipped.append(at)
            continue
        texts = _parted(wanted, _outcome(theirs, step))
        if texts is None and has_state:
            texts = _parted(_outcome(ours, _STATE), _outcome(theirs, _STATE))
            texts = texts and tuple(f"afterwards the state {text}" for text in texts)
        if texts is not None:
            return _Difference(at, *texts, (ours, theirs), skipped)
    return None


def _parted(wanted: Any, got: Any) -> tuple[str, str] | None:
    """What two outcomes say, if they are not the same."""
    wanted_value, wanted_text = wanted
    got_value, got_text = got or (None, "an error: NotApplicable")
    is_same = got_value is not None and got_value == wanted_value
    return None if is_same else (wanted_text, got_text)


def _outcome(world: Any, step: tuple[Any, ...]) -> tuple[Any, str] | None:
    """What a step came to, in a form to compare and as text; None: not applicable.

    The form to compare is None, equal to nothing, if the result is not plain data.
    """
    method = getattr(world, step[0])
    arguments = [_fresh(argument) for argument in step[1:]]
    try:
        result = method(*arguments)
    except NotApplicable:
        return None
    except (RecursionError, MemoryError):
        raise
    except Exception as error:
        kind = _type_name(type(error))
        return ("raises", kind), _as_outcome(error)
    try:
        result = copied(result)
    except NotPlain as fault:
        where = f" at {fault.place}" if fault.place else ""
        return None, f"{_a(fault.kind)}{where}, which is not plain data"
    return ("returns", canonical(result)), show(result)


def _fresh(argument: Any) -> Any:
    """An answer may change a list it is given; the next replay needs it as it was."""
    try:
        return copied(argument)
    except NotPlain:
        return argument


def _shrink(
    steps: list[tuple[Any, ...]],
    difference: _Difference,
    expected: Callable[[], Any],
    actual: Callable[[], Any],
) -> tuple[list[tuple[Any, ...]], _Difference]:
    """Drop steps while the worlds still differ: halves first, single ones last."""
    until, replays = _clock() + SHRINK_SECONDS, 0

    def kept(steps: list[Any], difference: _Difference) -> list[Any]:
        numbered = enumerate(steps[: difference.at + 1])
        return [step for at, step in numbered if at not in difference.skipped]

    steps = kept(steps, difference)
    size = len(steps) // 2
    while size:
        start, shrunk = 0, False
        while start < len(steps):
            if replays == REPLAY_LIMIT or _clock() > until:
                size, shrunk = 0, False
                break
            replays += 1
            fewer = steps[:start] + steps[start + size :]
            smaller = _replay(fewer, expected, actual)
            if smaller is None:
                start += size
            else:
                steps, difference, shrunk = kept(fewer, smaller), smaller, True
        if not (size == 1 and shrunk):
            size //= 2
    return steps, _replay(steps, expected, actual) or difference


def _operations_failure(
    steps: Sequence[tuple[Any, ...]],
    difference: _Difference,
    look: str,
    draw: Callable[[Any], str] | None,
) -> dict[str, Any]:
    ours, theirs = difference.worlds
    skipped = set(difference.skipped)
    shown = [
        _shown_step(step)
        for at, step in enumerate(steps[: difference.at + 1])
        if at not in skipped
    ]
    return {
        "call": shown[-1],
        "expected": difference.expected,
        "actual": difference.actual,
        "look": look,
        "operations": shown,
        "expected_drawing": _drawing(draw, ours),
        "actual_drawing": _drawing(draw, theirs),
    }


def _shown_step(step: tuple[Any, ...]) -> str:
    arguments = []
    for argument in step[1:]:
        try:
            arguments.append(show(copied(argument)))
        except NotPlain:
            arguments.append(_clip(repr(argument), TEXT_LIMIT))
    return f"{step[0]}({', '.join(arguments)})"


# errors of the answer


def _summary(error: BaseException) -> str:
    """`KeyError: 5`"""
    name = type.__dict__["__name__"].__get__(type(error))
    text = _error_text(error)
    return f"{name}: {text}" if text else name


def _error_text(error: BaseException) -> str:
    try:
        text = str(error)
    except BaseException:  # an exception class of the answer may do anything
        return "(its text cannot be read)"
    return _clip(_clean(text), TEXT_LIMIT) if type(text) is str else ""


def _own_frames(error: BaseException) -> list[tuple[int, str]]:
    """Line and function of every step of the traceback that is in the answer."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename == ANSWER_FILE:
            frames.append((trace.tb_lineno, code.co_name))
        trace = trace.tb_next
    return frames


def _where(error: BaseException) -> str:
    """The learner's own line that raised it: `line 5: raise KeyError`."""
    frames = _own_frames(error)
    if not frames:
        return ""
    line, _ = frames[-1]
    return f"line {line}: {_own_line(line)}"


def _own_line(line: int) -> str:
    return _clip(_clean(linecache.getline(ANSWER_FILE, line).strip()), 200)


def _as_outcome(error: BaseException) -> str:
    where = _where(error)
    return f"an error: {_summary(error)}{f' ({where})' if where else ''}"


def _own_traceback(error: BaseException) -> str:
    """The learner's own lines, the last of them last."""
    frames = _own_frames(error)
    lines = []
    if len(frames) > 6:
        lines.append(f"  … {len(frames) - 6} more …")
    for line, name in frames[-6:]:
        lines.append(f"  line {line}, in {_clean(name)}")
        lines.append(f"    {_own_line(line)}")
    return "\n".join(lines)


def _tested_call(error: BaseException, source: str) -> str:
    """The expression of tests.py that led to the error, as it is written there."""
    trace, found = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == TESTS_FILE:
            found = trace
        trace = trace.tb_next
    if found is None:
        return ""
    positions = list(found.tb_frame.f_code.co_positions())[found.tb_lasti // 2]
    first, last, start, end = positions
    if None in positions:
        return ""
    lines = [line.encode() for line in source.split("\n")[first - 1 : last]]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    text = " ".join(line.decode().strip() for line in lines)
    return _clip(text.replace("answer.", ""), 300)


# what must not change


class _Replaced(BaseException):
    """The answer replaced something that is not its own."""


class _Guard:
    """Remembers functions and classes of modules by identity, and puts them back.

    Only operators and methods of built-in types are used to look: a replaced built-in
    must not decide whether it was replaced.
    """

    def __init__(self, modules: Mapping[str, ModuleType | None]) -> None:
        self._names: list[tuple[Any, Any, str, Any, str]] = []
        self._owners: list[tuple[Any, Any, frozenset[str], str]] = []
        self._functions: list[tuple[FunctionType, Any, Any, Any, str]] = []
        for name, module in modules.items():
            found = sys.modules[name]  # None if the module is hidden
            self._names.append((None, sys.modules, name, found, f"the module {name}"))
            if module is None:
                continue
            self._remember(module, vars(module), name)
            if module is builtins:
                continue  # nobody can change its classes
            for value in list(vars(module).values()):
                if isinstance(value, type) and value.__module__ == module.__name__:
                    self._remember(value, vars(value), f"{name}.{value.__qualname__}")

    def _remember(self, owner: Any, names: Mapping[str, Any], label: str) -> None:
        self._owners.append((owner, names, frozenset(names), label))
        for name, value in list(names.items()):
            if not (callable(value) or isinstance(value, _DESCRIPTORS)):
                continue
            at = f"{label}.{name}"
            self._names.append((owner, names, name, value, at))
            function = getattr(value, "__func__", value)
            if isinstance(function, FunctionType):
                parts = _parts(function)
                self._functions.append((function, *parts, at))

    def replaced(self) -> str | None:
        """The first name that is not what it was; all of them are put back.

        A new method of a class, or a new name in a module that hides a built-in one,
        replaces something too.
        """
        first = None
        for owner, names, known, label in self._owners:
            if names.keys() <= known:
                continue
            for name in [*(names.keys() - known)]:
                if type(owner) is ModuleType and name not in _BUILTINS:
                    continue
                if callable(names[name]) or isinstance(names[name], _DESCRIPTORS):
                    first = first or f"{label}.{name}"
                    _delattr(owner, name)
        for owner, names, name, value, label in self._names:
            if names.get(name, _NOTHING) is not value:
                first = first or label
                if owner is None:
                    names[name] = value
                else:
                    _setattr(owner, name, value)
        for function, code, defaults, keywords, label in self._functions:
            if (
                function.__code__ is not code
                or function.__defaults__ is not defaults
                or function.__kwdefaults__ is not keywords
            ):
                first = first or label
                function.__code__ = code
                function.__defaults__ = defaults
                function.__kwdefaults__ = keywords
        return first


def _parts(function: FunctionType) -> tuple[Any, Any, Any]:
    return function.__code__, function.__defaults__, function.__kwdefaults__


_DESCRIPTORS = (property, staticmethod, classmethod, ModuleType)
_BUILTINS = frozenset(vars(builtins))
_setattr, _delattr = setattr, delattr


class _Interpreter:
    """The state of the interpreter before a run, to be put back after it.

    In the browser one interpreter serves many runs. Modules that a run loaded are
    dropped, so the next one begins with fresh ones.
    """

    def __init__(self) -> None:
        self.loaded = sys.modules
        self.modules = dict(sys.modules)
        self.names = [
            (vars(module), dict(vars(module)))
            for name, module in self.modules.items()
            if name.partition(".")[0] in sys.stdlib_module_names
            and name != "sys"
            and isinstance(module, ModuleType)
        ]
        self.streams = sys.stdin, sys.stdout, sys.stderr
        self.lists = [
            (items, list(items))
            for items in (sys.path, sys.meta_path, sys.path_hooks, sys.argv)
        ]
        self.hooks = sys.excepthook, sys.displayhook, sys.unraisablehook
        self.trace, self.profile = sys.gettrace(), sys.getprofile()
        self.recursion_limit = sys.getrecursionlimit()
        self.environment = dict(os.environ)
        self.folder = _folder()
        self.random = random.getstate()
        self.collects = gc.isenabled()

    def restore(self) -> None:
        sys.settrace(self.trace)
        sys.setprofile(self.profile)
        sys.modules = self.loaded
        for names, saved in self.names:
            if not _same_names(names, saved):
                names.clear()
                names.update(saved)
        for name in list(sys.modules):
            if name not in self.modules:
                del sys.modules[name]
        sys.modules.update(self.modules)
        sys.stdin, sys.stdout, sys.stderr = self.streams
        for items, saved in self.lists:
            items[:] = saved
        sys.excepthook, sys.displayhook, sys.unraisablehook = self.hooks
        sys.setrecursionlimit(self.recursion_limit)
        if dict(os.environ) != self.environment:
            os.environ.clear()
            os.environ.update(self.environment)
        if self.folder is not None and _folder() != self.folder:
            os.chdir(self.folder)
        random.setstate(self.random)
        (gc.enable if self.collects else gc.disable)()


def _same_names(names: dict[str, Any], saved: dict[str, Any]) -> bool:
    """By identity: comparing values would run code of whoever made them."""
    return len(names) == len(saved) and not any(
        names.get(name, _NOTHING) is not value for name, value in saved.items()
    )


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None


class _Output:
    """Takes what the answer prints; keeps the first OUTPUT_LIMIT characters."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, told: Callable[[str], None]) -> None:
        self.kept = ""
        self._told = told
        self._line = ""

    def write(self, text: str) -> int:
        if type(text) is not str:
            raise TypeError(f"write() takes a str, not {_a(type(text).__name__)}")
        room = OUTPUT_LIMIT - len(self.kept)
        if room > 0:
            piece = _clean(text[:room])[:room]
            self.kept += piece
            self._line += piece
            if "\n" in piece or len(self.kept) >= OUTPUT_LIMIT:
                self._told(self._line)
                self._line = ""
            if len(text) > room:
                self.kept += "\n… output cut here …\n"
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return False

    def writable(self) -> bool:
        return True


# a run


def run(
    slug: str,
    *,
    answer: str,
    tests: str,
    defines: Sequence[str],
    checks: int,
    holes: Sequence[str] = (),
    announce: Callable[[dict[str, Any]], None] = lambda event: None,
) -> dict[str, Any]:
    """Run the tests of a problem on an answer: the result, as plain data.

    Args:
        slug: the problem.
        answer: source of the answer, `tests`: source of the problem's tests.
        defines: what must be written in the answer itself: `PageAllocator`, or with a
            method, `PageAllocator.allocate`.
        checks: how many checks a right answer executes.
        holes: functions and methods of the engine that are taken out for this run,
            `minisgl.kvcache.page_allocator.PageAllocator.allocate`: they are what the
            answer is to write, so it cannot borrow them.
        announce: told what happens while it happens, see `docs/practice-judge.md`.
    """
    for name in SHARED_MODULES:  # before the snapshot, so that they stay
        importlib.import_module(name)
    interpreter = _Interpreter()
    try:
        return _Run(slug, answer, tests, defines, checks, holes, announce).result()
    finally:
        interpreter.restore()
        for file in (ANSWER_FILE, TESTS_FILE):
            linecache.cache.pop(file, None)


class _Run:
    def __init__(
        self,
        slug: str,
        answer: str,
        tests: str,
        defines: Sequence[str],
        checks: int,
        holes: Sequence[str],
        announce: Callable[[dict[str, Any]], None],
    ) -> None:
        self.slug = slug
        self.answer_source = answer
        self.tests_source = tests
        self.defines = defines
        self.planned = checks
        self.holes = holes
        self.announce = announce
        self.executed = 0
        self.output = ""
        self.records: list[dict[str, Any]] = []

    def result(self) -> dict[str, Any]:
        for name in list(sys.modules):
            if name.partition(".")[0] in ("minisgl", ANSWER_MODULE, *WORLDS):
                del sys.modules[name]
        sys.modules["grading"] = sys.modules[__name__]
        found = self._load_tests()
        worlds = _hidden_worlds()
        names = [one.name for one in found]
        self.records = [not_run(name) for name in names]
        self.announce(
            {
                "event": "plan",
                "tests": [{"name": t.name, "example": t.example} for t in found],
            }
        )
        for hole in self.holes:
            _take_out(hole)
        self.guard = _Guard({**_modules_of_others(), **worlds})
        self.core_guard = _Guard(
            {"builtins": builtins, "grading": sys.modules["grading"], **worlds}
        )
        self.announce({"event": "start", "index": -1, "name": LOADING})
        module, problem = self._load_answer()
        if problem:
            return self._verdict("rejected", problem)
        for index, one in enumerate(found):
            self.announce({"event": "start", "index": index, "name": one.name})
            self.records[index] = self._run_test(index, one, module)
            self.announce(
                {"event": "test", "index": index, "record": self.records[index]}
            )
        return verdict(
            self.slug, self.records, self.planned, self.executed, self.output
        )

    def _verdict(self, status: str, message: str) -> dict[str, Any]:
        return result_of(
            self.slug,
            status,
            message,
            self.records,
            self.planned,
            self.executed,
            self.output,
        )

    def _load_tests(self) -> list[_Test]:
        _registered.clear()
        _load(TESTS_MODULE, TESTS_FILE, self.tests_source)
        found = list(_registered)
        _registered.clear()
        if not found:
            raise ValueError(f"the tests of {self.slug} register no test")
        return found

    def _load_answer(self) -> tuple[ModuleType | None, str]:
        """The module of the answer; or what is wrong with it, for the learner."""
        source = self.answer_source
        try:
            tree = ast.parse(source, ANSWER_FILE)
        except SyntaxError as error:
            return None, _syntax_problem(error)
        except (ValueError, RecursionError, MemoryError) as error:
            return None, f"your answer cannot be read as Python: {_summary(error)}"
        if not tree.body:
            return None, "your answer is empty: " + _to_write(self.defines)
        if missing := _missing(tree, self.defines):
            return None, missing
        output = _Output(self._teller(-1))
        sys.stdout = sys.stderr = output  # type: ignore[assignment]
        problem, module, caught = "", None, None
        try:
            module = _load(ANSWER_MODULE, ANSWER_FILE, source)
        except BaseException as error:
            caught = error
        if replaced := self.guard.replaced():  # first: what follows uses built-ins
            return None, _replaced_text(replaced)
        if caught is not None:
            problem = f"your answer stops while it is loaded: {_explained(caught)}"
            if trace := _own_traceback(caught):
                problem += f"\n{trace}"
        self.output = output.kept
        if problem:
            return None, problem
        for name in self.defines:
            value = vars(module).get(name.partition(".")[0])
            if getattr(value, "__module__", None) != ANSWER_MODULE:
                return None, f"{name} is defined and then bound to something else"
        return module, ""

    def _run_test(self, index: int, one: _Test, module: Any) -> dict[str, Any]:
        record = self.records[index]
        output = _Output(self._teller(index))
        sys.stdout = sys.stderr = output  # type: ignore[assignment]
        check = Check(
            self._check_core,
            lambda failure: self.announce(
                {"event": "found", "index": index, "failure": failure}
            ),
        )
        random.seed(index)  # an answer that draws lots does so alike every time
        caught: BaseException | None = None
        begin = _clock()
        try:
            one.function(module, check)
        except BaseException as error:
            caught = error
        seconds = _clock() - begin
        replaced = self.guard.replaced()  # first: what follows uses built-ins
        status, message, failure = "passed", "", None
        if replaced or isinstance(caught, _Replaced):
            status, message = "error", _replaced_text(replaced or str(caught))
        elif isinstance(caught, _Failed):
            status, failure = "failed", caught.failure
            message = message_of(failure)
        elif caught is not None:
            is_stopped = isinstance(caught, KeyboardInterrupt)
            status = "timed out" if is_stopped else "error"
            message, failure = _explained(caught), self._error_failure(caught)
            if trace := _own_traceback(caught):
                message += f"\n{trace}"
        self.executed += check.executed
        return record | {
            "status": status,
            "time_ms": round(seconds * 1000, 1),
            "message": message,
            "output": output.kept,
            "failure": failure,
        }

    def _check_core(self) -> None:
        if replaced := self.core_guard.replaced():
            raise _Replaced(replaced)

    def _error_failure(self, error: BaseException) -> dict[str, Any]:
        return {
            "call": _tested_call(error, self.tests_source),
            "expected": "no error",
            "actual": f"an error: {_explained(error)}",
            "look": _where(error),
            "operations": None,
            "expected_drawing": None,
            "actual_drawing": None,
        }

    def _teller(self, index: int) -> Callable[[str], None]:
        return lambda text: self.announce(
            {"event": "output", "index": index, "text": text}
        )


def verdict(
    slug: str,
    records: list[dict[str, Any]],
    planned: int,
    executed: int,
    output: str = "",
) -> dict[str, Any]:
    """The result of a run that came to its end."""
    bad = [record for record in records if record["status"] != "passed"]
    passed = len(records) - len(bad)
    if bad:
        status = "rejected"
        message = (
            f"{passed} of {len(records)} tests pass; look first at: {bad[0]['name']}"
        )
    elif executed != planned:
        status = "no result"
        message = f"{executed} checks were executed, and {planned} are planned"
    else:
        status = "accepted"
        message = f"all {len(records)} tests pass, {executed} checks"
    return result_of(slug, status, message, records, planned, executed, output)


def result_of(
    slug: str,
    status: str,
    message: str,
    records: list[dict[str, Any]],
    planned: int,
    executed: int,
    output: str = "",
) -> dict[str, Any]:
    """A result in the form that both front ends show."""
    return {
        "version": 1,
        "slug": slug,
        "status": status,
        "message": message,
        "checks": {"planned": planned, "executed": executed},
        "tests": records,
        "output": output,
    }


def message_of(failure: Mapping[str, Any]) -> str:
    """A failure in one line."""
    return "{call}: expected {expected}; got {actual}".format(**failure)


def not_run(name: str) -> dict[str, Any]:
    """The record of a test that was not reached."""
    return {
        "name": name,
        "status": "not run",
        "time_ms": 0.0,
        "message": "",
        "output": "",
        "failure": None,
    }


def _load(name: str, file: str, source: str) -> ModuleType:
    """Run a source as a real module: dataclasses need it in `sys.modules`."""
    module = ModuleType(name)
    module.__file__ = file
    lines = source.splitlines(keepends=True)
    linecache.cache[file] = (len(source), None, lines, file)
    code = compile(source, file, "exec", dont_inherit=True)
    sys.modules[name] = module
    exec(code, vars(module))
    return module


def _modules_of_others() -> dict[str, ModuleType]:
    """What an answer uses and must not change."""
    return {
        name: module
        for name, module in sys.modules.items()
        if isinstance(module, ModuleType)
        and (
            name in SHARED_MODULES
            or name in ("grading", TESTS_MODULE)
            or name.partition(".")[0] == "minisgl"
        )
    }


def _hidden_worlds() -> dict[str, ModuleType | None]:
    """Hide the modules that tests share; None for those that these tests do not use.

    The tests keep what they imported; any later import of one fails.
    """
    worlds = {name: sys.modules.get(name) for name in WORLDS}
    sys.modules.update(dict.fromkeys(WORLDS))  # type: ignore[arg-type]
    return worlds


def _take_out(hole: str) -> None:
    """Put a stub in the place of a function or method of the engine."""
    parts, cut = hole.split("."), 0
    owner: Any = None
    while cut < len(parts):  # the longest part of the name that is a module
        try:
            owner = importlib.import_module(".".join(parts[: cut + 1]))
        except ModuleNotFoundError:
            break
        cut += 1
    if cut == 0 or (hasattr(owner, "__path__") and not hasattr(owner, parts[cut])):
        return  # its module needs torch, so an answer cannot reach it either
    for part in parts[cut:-1]:
        owner = getattr(owner, part, _NOTHING)
    label = ".".join(parts[cut:])

    def stub(*args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError(
            f"the engine's own {label} is not here: it is what you write"
        )

    old = vars(owner).get(parts[-1], _NOTHING) if owner is not _NOTHING else _NOTHING
    if old is _NOTHING:
        raise ValueError(f"the engine has no {hole}")
    wrapped: Any = stub
    for kind in (property, staticmethod, classmethod):
        if isinstance(old, kind):
            wrapped = kind(stub)
    setattr(owner, parts[-1], wrapped)


def _missing(tree: ast.Module, defines: Sequence[str]) -> str:
    """What the answer must define and does not; "" if nothing.

    It is read from the source: whatever a name is bound to when it runs, a definition
    that is not written there was taken from somewhere else.
    """
    for name in defines:
        scope, path = tree.body, name.split(".")
        for depth, part in enumerate(path):
            so_far = ".".join(path[: depth + 1])
            node = _defined(scope, part)
            if node is None and depth == 0:
                if _imported(tree, part):
                    return (
                        f"{so_far} is imported, not written in your answer: "
                        f"{_to_write([name])}"
                    )
                return f"{so_far} is not in your answer: {_to_write([name])}"
            if node is None:
                return (
                    f"{so_far} is defined by the engine and inherited, not written in "
                    f"your answer: {_to_write([name])}"
                )
            scope = getattr(node, "body", [])
    return ""


def _defined(scope: list[ast.stmt], name: str) -> ast.stmt | None:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    for node in scope:
        if isinstance(node, kinds) and node.name == name:
            return node
    return None


def _imported(tree: ast.Module, name: str) -> bool:
    return any(
        (alias.asname or alias.name) == name
        for node in tree.body
        if isinstance(node, ast.ImportFrom | ast.Import)
        for alias in node.names
    )


def _to_write(defines: Sequence[str]) -> str:
    names = ", ".join(f"`{name}`" for name in defines)
    return f"write {names}; the starter shows how it begins"


def _replaced_text(name: str) -> str:
    plain = name.removeprefix("builtins.").removeprefix("<tests>.")
    return f"your answer replaces {plain}, which is not its own: leave it as it is"


def _explained(error: BaseException) -> str:
    """What an error means for an answer."""
    text = _summary(error)
    if isinstance(error, RecursionError):
        return f"recursion too deep: {text}"
    if isinstance(error, MemoryError):
        return "out of memory: your answer asks for more than the judge gives"
    if isinstance(error, SystemExit):
        return "your answer ends the program (SystemExit): return a result instead"
    if isinstance(error, KeyboardInterrupt):
        return "stopped by KeyboardInterrupt: it takes too long, or raises it"
    if isinstance(error, NotImplementedError):
        return f"not written yet: {text}"
    if isinstance(error, ModuleNotFoundError):
        return (
            f"{text}. An answer may import the standard library and the modules of "
            "minisgl that its chapter has and that do not need torch"
        )
    return text


def _syntax_problem(error: SyntaxError) -> str:
    place = f" in line {error.lineno}" if error.lineno else ""
    text = f"your answer is not Python{place}: {_clean(error.msg or 'invalid syntax')}"
    if error.text:
        line = error.text.rstrip("\n")
        gone = len(line) - len(line.lstrip())
        text += f"\n    {_clean(line.strip())}"
        if error.offset:
            text += f"\n    {' ' * max(0, error.offset - 1 - gone)}^"
    return text
