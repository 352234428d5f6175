"""A course of three small chapters in a temporary folder, without torch."""

from __future__ import annotations

import json
from pathlib import Path

from course.git import EMPTY_TREE
from course.manifest import Course
from course.runner import Runner
from course.stack import Stack, tree_diff

COUNTER = '''\
"""Counts things."""


class Counter:
    """A number that grows."""

    def __init__(self) -> None:
        self.total = 0

    def add(self, count: int) -> int:
        """Count `count` more; returns the total."""
        self.total += count
        return self.total
'''
STRICT = COUNTER.replace(
    "        self.total += count\n",
    '        if count < 0:\n            raise ValueError(f"negative count: {count}")\n'
    "        self.total += count\n",
)
STORE = '''\
"""Keeps counters by name."""

from minisgl.counter import Counter


class Store:
    """Counters by name, made when first asked for."""

    def __init__(self) -> None:
        self.counters: dict[str, Counter] = {}

    def get(self, name: str) -> Counter:
        """The counter called `name`."""
        # a comment that tells how
        return self.counters.setdefault(name, Counter())
'''
REPORT = '''\
"""Prints a store."""

from minisgl.store import Store


def lines(store: Store) -> list[str]:
    """One line a counter, by name."""
    return [f"{name} {c.total}" for name, c in sorted(store.counters.items())]
'''
INIT = '"""A small package."""\n'
STAGES = [
    {"minisgl/__init__.py": INIT, "minisgl/counter.py": COUNTER},
    {
        "minisgl/__init__.py": INIT,
        "minisgl/counter.py": STRICT,
        "minisgl/store.py": STORE,
    },
    {
        "minisgl/__init__.py": INIT,
        "minisgl/counter.py": STRICT,
        "minisgl/store.py": STORE,
        "minisgl/report.py": REPORT,
    },
]
TESTS = [
    """\
from minisgl.counter import Counter


def test_a_counter_starts_at_nothing():
    assert Counter().total == 0


def test_counts_add_up():
    counter = Counter()
    counter.add(2)
    assert counter.add(3) == 5
""",
    """\
import pytest

from minisgl.store import Store


def test_a_counter_is_kept_by_name():
    store = Store()
    store.get("a").add(1)
    assert store.get("a").total == 1


def test_a_negative_count_is_refused():
    with pytest.raises(ValueError, match="negative count: -1"):
        Store().get("a").add(-1)
""",
    """\
from minisgl.report import lines
from minisgl.store import Store


def test_a_report_is_in_the_order_of_names():
    store = Store()
    store.get("b").add(1)
    store.get("a").add(2)
    assert lines(store) == ["a 2", "b 1"]
""",
]
EXAMPLES = [
    ("from minisgl.counter import Counter\n\nprint(Counter().add(3))\n", "3\n"),
    ("from minisgl.store import Store\n\nprint(Store().get('a').add(1))\n", "1\n"),
    (
        "from minisgl.report import lines\nfrom minisgl.store import Store\n\n"
        "store = Store()\nstore.get('a').add(1)\nprint(*lines(store))\n",
        "a 1\n",
    ),
]
NAMES = [
    ["counter.Counter.add"],
    ["store.Store.get", "counter.Counter.add"],
    ["report.lines"],
]
SLUGS = ["counter", "store", "report"]
HINTS = ["What is kept?", "What if it is new?", "setdefault?"]


class MiniCourse:
    """The course in `root`. Change the lists, then `write`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.stages = [dict(stage) for stage in STAGES]
        self.tests = list(TESTS)
        self.examples = list(EXAMPLES)
        self.retired: list[dict[str, str]] = [{}, {}, {}]
        self.extra: dict[str, str] = {}

    def write(self) -> Runner:
        """Write everything; a runner of the course as it is now."""
        manifest = "".join(self._entry(index) for index in range(len(self.stages)))
        self.put("steps/chapters.toml", manifest)
        for index, slug in enumerate(SLUGS[: len(self.stages)]):
            stem = f"ch{index + 1:02}_{slug}"
            self.put(f"tests/test_{stem}.py", self.tests[index])
            source, output = self.examples[index]
            self.put(f"examples/{stem}.py", source)
            self.put(f"examples/{stem}.out", output)
            hints = "".join(
                f"{json.dumps(n)} = {json.dumps(HINTS)}\n" for n in NAMES[index]
            )
            self.put(f"steps/hints/{index + 1:02}_{slug}.toml", hints)
        for path, text in [*self.stages[-1].items(), *self.extra.items()]:
            self.put(path, text)
        self._write_patches()
        return self.runner()

    def runner(self) -> Runner:
        course = Course.load(self.root)
        return Runner(course, Stack(course))

    def put(self, path: str, text: str) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def _write_patches(self) -> None:
        repo = Stack(Course.load(self.root)).repo
        before = EMPTY_TREE
        for index, (slug, files) in enumerate(zip(SLUGS, self.stages, strict=False), 1):
            with repo.index() as env:
                rows = ""
                for path, text in files.items():
                    args = ("hash-object", "-w", "--stdin")
                    blob = repo.line(*args, stdin=text.encode())
                    rows += f"100644 {blob}\t{path}\n"
                args = ("update-index", "--add", "--index-info")
                repo.run(*args, stdin=rows.encode(), env=env)
                after = repo.line("write-tree", env=env)
            patch = tree_diff(repo, before, after)
            (self.root / f"steps/{index:02}_{slug}.patch").write_bytes(patch)
            before = after

    def _entry(self, index: int) -> str:
        number, slug = index + 1, SLUGS[index]
        stem = f"ch{number:02}_{slug}"
        retired = ", ".join(
            f"{json.dumps(name)} = {json.dumps(reason)}"
            for name, reason in self.retired[index].items()
        )
        return (
            f"[[chapter]]\nnumber = {number}\nslug = {slug!r}\ntitle = 'The {slug}'\n"
            f"part = 'All of it'\nexample = 'examples/{stem}.py'\n"
            f"tests = ['tests/test_{stem}.py']\nnames = {json.dumps(NAMES[index])}\n"
            f"retired = {{ {retired} }}\n\n"
        )
