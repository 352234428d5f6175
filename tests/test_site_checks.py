"""The checks of what pages show and say: each fault is found, with page and line."""

from __future__ import annotations

from pathlib import Path

import pytest
from course.cli import main
from course.manifest import Course
from course.pages.numbers import unsourced
from course.verify import verify
from support.page_course import PageCourse


@pytest.fixture
def course(tmp_path: Path) -> PageCourse:
    return PageCourse(tmp_path)


RULES = ("directives", "shown", "code_style", "numbers", "exercises")


def test_good_pages_have_no_faults(course: PageCourse):
    course.write()
    assert {rule: course.faults(rule) for rule in RULES} == dict.fromkeys(RULES, [])


# --- every added line is shown --------------------------------------------------------


def test_a_listing_that_is_taken_out_is_missed_line_by_line(course: PageCourse):
    course.pages[1] = "::: code store.py :head Store:head\n\n::: diff counter.py\n"
    course.write()
    start = "docs/02_store.md:1: minisgl/store.py"
    assert course.faults("shown") == [
        f"{start} Store.__init__ is not shown (lines 9, 10)",
        f"{start} Store.get is not shown (lines 12, 13, 14, 15)",
    ]


def test_a_changed_line_in_an_old_function_is_missed(course: PageCourse):
    course.pages[1] = "::: code store.py\n"
    course.write()
    assert course.faults("shown") == [
        "docs/02_store.md:1: minisgl/counter.py Counter.add is not shown (lines 12, 13)"
    ]


def test_a_region_shows_its_own_lines_only(course: PageCourse):
    course.pages[1] = (
        "::: code store.py\n\n"
        '::: code counter.py Counter.add from="count < 0" to="count < 0"\n'
    )
    course.write()
    [fault] = course.faults("shown")
    assert "Counter.add is not shown (line 13)" in fault


def test_lines_outside_definitions_are_missed_too(course: PageCourse):
    more = "\nTHINGS = (1, 2)\n\n\ndef more() -> None:\n    pass\n\n\nLAST = 1\n"
    course.stages[2]["minisgl/report.py"] += more
    course.pages[2] = "::: code report.py lines more\n"
    course.write()
    said = [fault.partition("report.py ")[2] for fault in course.faults("shown")]
    assert said == [
        ":head is not shown (lines 1, 3)",
        ":rest is not shown (lines 10, 17)",
    ]
    course.pages[2] = "::: code report.py :head lines more THINGS LAST\n"
    course.write()
    assert course.faults("shown") == []


@pytest.mark.parametrize(
    "entries",
    [
        "store.py Store: a reason",
        "store.py Store.__init__: a reason\nstore.py Store.get: a reason",
        "store.py *: a reason",
    ],
)
def test_what_is_omitted_with_a_reason_is_not_missed(course: PageCourse, entries: str):
    start = "::: code store.py :head\n\n::: diff counter.py\n\n"
    if "Store.get" in entries:
        start += "::: code store.py Store:head\n\n"
    course.pages[1] = f"{start}::: omitted\n{entries}\n:::\n"
    course.write()
    assert course.faults("shown") == []


@pytest.mark.parametrize(
    "entry",
    [
        "counter.py Counter.__init__: chapter 1 shows it",  # not changed here
        "store.py Store.get: it is shown above",
    ],
)
def test_an_omission_that_hides_nothing_is_a_fault(course: PageCourse, entry: str):
    course.pages[1] += f"\n::: omitted\n{entry}\n:::\n"
    course.write()
    [fault] = course.faults("shown")
    assert fault.startswith("docs/02_store.md:8: minisgl/")
    assert "is shown, or not of this chapter" in fault


def test_code_that_moves_to_a_later_chapter_leaves_a_page_behind(course: PageCourse):
    """A hunk of chapter 2 is now in chapter 3: both pages say what is no longer so."""
    course.stages[1]["minisgl/counter.py"] = course.stages[0]["minisgl/counter.py"]
    course.pages[1] += "\nThat raises for `Counter.add(-1)`.\n"
    course.write()
    [broken] = course.faults("directives")
    assert broken.startswith("docs/02_store.md:5: chapter 2 does not change")
    assert "docs/03_report.md:1: minisgl/counter.py Counter.add is not shown" in (
        "\n".join(course.faults("shown"))
    )


# --- names in code style --------------------------------------------------------------

GOOD_NAMES = [
    "Counter.add",
    "Counter.total",
    "counter.total",
    "counter.Counter",
    "minisgl.counter.Counter.add",
    "Counter().add(3)",
    "add(3)",
    "counter.py",
    "minisgl/counter.py",
    "minisgl/",
    "tests/test_ch01_counter.py",
    "test_counts_add_up",
    "examples/ch01_counter.py",
    "steps/01_counter.patch",
    "ValueError",
    "dict.setdefault",
    "list.append()",
    "len(x)",
    "sys.path",
    "x + 1 == 2",
    "--jobs",
    "[1, 2]",
    "N",
]


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_a_name_that_exists_at_the_stage_is_good(course: PageCourse, name: str):
    course.pages[0] += f"\nSee `{name}`.\n"
    course.write()
    assert course.faults("code_style") == []


BAD_NAMES = {
    "Counter.ad": "Counter has no ad at this stage; did you mean Counter.add?",
    "Store.get": "this stage has no Store.get",  # of chapter 2
    "store.py": "this stage has no store.py",
    "minisgl/store.py": "this stage has no minisgl/store.py",
    "kvcache/": "this stage has no kvcache/",
    "tests/test_ch09.py": "this stage has no tests/test_ch09.py; did you mean tests/",
    "setdefalt()": "this stage has no setdefalt",
    "counter.Conter": "this stage has no Conter; did you mean Counter?",
    "minisgl.counter.missing": "this stage has no minisgl.counter.missing",
    "counter.summe": "this stage has no summe",
    "test_counts_ad_up": "did you mean test_counts_add_up?",
    "RadixCache": "this stage has no RadixCache",
    "num_things": "this stage has no num_things",
}


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_does_not_exist_is_found(course: PageCourse, name: str):
    course.pages[0] += f"\nSee `Counter.add`, and then\n`{name}`.\n"
    course.write()
    [fault] = course.faults("code_style")
    assert fault.startswith(f"docs/01_counter.md:8: `{name}`: "), fault
    assert BAD_NAMES[name] in fault


def test_a_name_may_be_elsewhere_and_a_chapter_is_looked_up(course: PageCourse):
    course.pages[0] += (
        '\n{{elsewhere: RadixCache, "SGLang"}} {{elsewhere: Store.get, "chapter 2"}}\n'
        '{{elsewhere: Store.set, "chapter 2"}} {{elsewhere: Store, "chapter 9"}}\n'
    )
    course.write()
    assert course.faults("code_style") == [
        "docs/01_counter.md:8: `Store.set`: chapter 2: Store has no set at this stage; "
        "did you mean Store.get?",
        "docs/01_counter.md:8: there is no chapter 9",
    ]


def test_names_on_a_page_of_the_whole_course_are_those_of_the_last_stage(
    course: PageCourse,
):
    course.extra["docs/index.md"] = "`Store.get` `report.lines` `Store.set`\n"
    course.write()
    [fault] = course.faults("code_style")
    assert fault.startswith("docs/index.md:1: `Store.set`")


# --- numbers --------------------------------------------------------------------------

FREE = [
    "three of 20 requests",
    "1. a list item with 2 things",
    "## 3 A heading",
    "chapter 31, chapters 25 to 31, chapters 22, 23 and 24",
    "slot 128 of page 32, and positions 40 to 45",
    "a 32-bit integer, float32, Qwen3.5, SmolLM2-135M-Instruct",
    "Python 3.11 or newer",
    "[a link](https://example.com/2024/99)",
    '<a id="x30">text</a>',
    "the 3rd of them",
    "it runs 3 times",
    "2 × 3 things",
    "nothing at all",
]
MEASURED = {
    "it takes 231 tokens": ["231"],
    "about 46,080 bytes": ["46,080"],
    "temperature 0.7": ["0.7"],
    "3 ms and 5 %": ["3 ms", "5 %"],
    "5% more": ["5%"],
    "a 2x gain": ["2x"],
    "it is 4 times faster": ["4 times faster"],
    "It is ten times as fast": ["ten times as"],
    "twice as fast": ["twice as fast"],
    "8 GiB of memory": ["8 GiB"],
    "12 tokens/s": ["12 tokens/s"],
    "a 3-fold speed-up": ["3-fold"],
    "after 10 seconds": ["10 seconds"],
    "fifty percent": ["fifty percent"],
    "page size 64": ["64"],
    "| a table | 512 |": ["512"],
}


@pytest.mark.parametrize("line", FREE)
def test_small_counts_and_the_numbers_of_things_are_free(line: str):
    assert list(unsourced(line)) == []


@pytest.mark.parametrize("line", MEASURED)
def test_a_measurement_without_a_source_is_found(line: str):
    assert list(unsourced(line)) == MEASURED[line]


def test_a_number_on_a_page_is_found_with_its_line(course: PageCourse):
    course.pages[0] += (
        "\nIt prints {{out:3}} in `231` lines.\n\n```\n777\n```\n\n"
        '{{given: 400, "a book"}} and {{eg: 500}}\n\nand 600\n\n'
        "::: self-test\n1. How many?\n---\n1. All 700.\n:::\n"
    )
    course.write()
    assert course.faults("numbers") == [
        "docs/01_counter.md:15: '600' does not say where it comes from",
        "docs/01_counter.md:20: '700' does not say where it comes from",
    ]


def test_a_measurement_is_not_made_up(course: PageCourse):
    course.pages[0] += "\n{{eg: 40}} ms, {{eg: 40 %}} and {{eg: 40}} tokens\n"
    course.write()
    assert course.faults("numbers") == [
        "docs/01_counter.md:7: {{eg: 40}} has a unit: measurements are recorded, not "
        "made up",
        "docs/01_counter.md:7: {{eg: 40 %}} must be a number alone",
    ]


def test_reasons_and_captions_are_prose(course: PageCourse):
    course.pages[0] = (
        "::: code __init__.py\n\n"
        "::: omitted\ncounter.py *: it has 400 lines of `Nope()`\n"
        ':::\n\n::: draw "5 ms"\nroot\n:::\n'
    )
    course.write()
    assert [f.partition(" does")[0] for f in course.faults("numbers")] == [
        "docs/01_counter.md:4: '400'",
        "docs/01_counter.md:7: '5 ms'",
    ]
    assert "`Nope()`" in course.faults("code_style")[0]


# --- exercises, and verify as a whole -------------------------------------------------


def test_an_exercise_that_its_page_does_not_have_is_missed(course: PageCourse):
    course.add_problem()
    course.write()
    assert course.faults("exercises") == [
        "docs/02_store.md:1: ::: exercise counter-add is missing"
    ]
    course.pages[1] += "\n::: exercise counter-add\n"
    course.write()
    assert course.faults("exercises") == []


def test_an_exercise_stands_on_the_page_of_its_chapter(course: PageCourse):
    course.add_problem()
    course.pages[0] += "\n::: exercise counter-add\n"
    course.pages[1] += "\n::: exercise counter-add\n"
    course.write()
    assert course.faults("directives") == [
        "docs/01_counter.md:7: counter-add belongs to chapter 2"
    ]


def test_verify_reports_the_pages_with_page_line_and_next_step(course: PageCourse):
    course.pages[0] += "\nA `Conter.add` of 231.\n"
    course.write()
    problems = {
        result.rule: [(p.message, p.hint) for p in result.problems]
        for result in verify(Course.load(course.root))
        if result.rule.startswith(("names in code", "numbers", "every line"))
    }
    assert len(problems) == 3
    assert problems["every line a chapter adds is on its page, or omitted there"] == []
    [[name], [number]] = [found for found in problems.values() if found]
    assert "docs/01_counter.md:7: `Conter.add`" in name[0] and "elsewhere" in name[1]
    assert "docs/01_counter.md:7: '231'" in number[0] and "{{run:" in number[1]


def test_a_page_that_no_chapter_lists_is_reported(course: PageCourse):
    course.extra["docs/07_extra.md"] = "# Extra\n"
    course.write()
    messages = [
        p.message
        for result in verify(Course.load(course.root))
        for p in result.problems
    ]
    assert "no chapter lists docs/07_extra.md" in messages


def test_in_a_course_with_a_site_every_chapter_has_a_page(course: PageCourse):
    course.pages.pop()
    course.write()
    course.put("mkdocs.yml", "")
    folders = next(verify(Course.load(course.root)))
    assert [p.message for p in folders.problems] == ["chapter 03 report has no page"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["pages", "2"], 0, "ok   every line a chapter adds"),
        (["pages"], 1, "docs/01_counter.md:7: `ConTer`"),
        (["pages", "1"], 1, "docs/01_counter.md:7: `ConTer`"),
        (["pages", "9"], 2, "there is no chapter 9"),
    ],
)
def test_the_command_checks_all_pages_or_those_of_some_chapters(
    course: PageCourse,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    said: str,
):
    course.pages[0] += "\n`ConTer`\n"
    course.write()
    monkeypatch.setattr("sys.argv", ["steps.py", *words])
    assert main(course.root) == code
    assert said in "".join(capsys.readouterr())
