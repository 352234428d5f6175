"""Directives: what they show, and how they refuse."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import pytest
from course.errors import CourseError
from course.pages.drawing import draw, parse_tree
from course.pages.errors import PageError
from course.pages.render import Renderer
from course.pages.runs import Run
from support.page_course import PageCourse


@pytest.fixture
def course(tmp_path: Path) -> PageCourse:
    return PageCourse(tmp_path)


def shown(course: PageCourse, number: int, text: str) -> str:
    """A page's text as a reader sees it: tags taken out, entities resolved."""
    course.pages[number - 1] = f"{text}\n\nPage {number}.\n"
    return plain(course.write().html(number))


def plain(html: str) -> str:
    return unescape(re.sub(r"<[^>]*>", "", html))


# --- code -----------------------------------------------------------------------------


def test_code_is_that_of_the_chapter_not_of_the_last_one(course: PageCourse):
    text = "::: code counter.py Counter.add\n"
    first, second = shown(course, 1, text), shown(course, 2, text)
    assert "self.total += count" in first and "negative count" not in first
    assert "negative count" in second


def test_a_method_is_moved_to_the_left_edge(course: PageCourse):
    assert "\ndef add(self, count: int)" in "\n" + shown(
        course, 1, "::: code minisgl/counter.py Counter.add\n"
    ).partition("diff")[2].lstrip("\n")


def test_several_names_are_one_listing_with_marks_for_gaps(course: PageCourse):
    text = shown(course, 1, "::: code counter.py Counter:head Counter.add\n")
    assert text.count("class Counter:") == text.count("def add") == 1
    assert "def __init__" not in text
    assert text.index("class Counter:") < text.index("    # …") < text.index("def add")


def test_names_that_are_neighbours_have_no_gap(course: PageCourse):
    text = shown(course, 1, "::: code counter.py Counter.__init__ Counter.add\n")
    assert "…" not in text


def test_the_head_of_a_file_is_what_is_above_its_first_definition(course: PageCourse):
    text = shown(course, 2, "::: code store.py :head\n")
    assert '"""Keeps counters by name."""' in text
    assert "from minisgl.counter import Counter" in text
    assert "class Store" not in text


def test_a_region_is_cut_by_two_texts(course: PageCourse):
    cut = '::: code store.py Store.get from="a comment" to="setdefault"\n'
    text = shown(course, 2, cut)
    assert "# a comment that tells how" in text and "setdefault" in text
    assert "def get" not in text


def test_a_comment_right_above_a_definition_is_shown_with_it(course: PageCourse):
    for stage in course.stages:
        stage["minisgl/counter.py"] = stage["minisgl/counter.py"].replace(
            "    def add", "    # why it adds\n    def add"
        )
    assert "# why it adds" in shown(course, 1, "::: code counter.py Counter.add\n")


@pytest.mark.parametrize(
    ("number", "names", "state"),
    [
        (1, "Counter.add", "(in a new file)"),
        (2, "Counter.add", "(changed in this chapter)"),
        (2, "Counter.__init__", "(unchanged since chapter 1)"),
        (3, "Counter.add", "(unchanged since chapter 2)"),
        (3, "", "(changed in this chapter)"),
        (3, "Counter.clear", "(new in this chapter, goes after Counter.add)"),
    ],
)
def test_a_caption_says_where_the_code_goes(
    course: PageCourse, number: int, names: str, state: str
):
    more = "\n    def clear(self) -> None:\n        self.total = 0\n"
    course.stages[2]["minisgl/counter.py"] += more
    assert state in shown(course, number, f"::: code counter.py {names}".rstrip())


def test_a_caption_links_the_file_now_finished_and_its_diff(course: PageCourse):
    course.pages[0] = "::: code counter.py Counter.add\n"
    html = course.write().html(1)
    assert 'href="code/01/counter.py.html#L-10">as of this chapter' in html
    assert 'href="code/02/counter.py.html">finished' in html
    assert 'href="code/01/counter.py.html#diff">diff' in html
    course.pages[2] = "# Later\n\n::: code counter.py Counter.add\n"
    html = course.write().html(3)
    assert 'href="code/02/counter.py.html#L-10">as of this chapter' in html
    assert ">diff</a>" not in html  # chapter 3 does not change it


# --- the other directives -------------------------------------------------------------


def test_a_diff_is_the_chapters_own(course: PageCourse):
    text = shown(course, 2, "::: diff counter.py\n")
    assert "+        if count < 0:" in text
    assert "diff --git" not in text and "+++" not in text


def test_the_file_tree_marks_new_and_modified_and_folds_the_rest(course: PageCourse):
    for stage in course.stages:
        stage["minisgl/deep/__init__.py"] = ""
    course.pages[1] = "::: files\n"
    html = course.write().html(2)
    text = plain(html)
    assert "Files so far: 4 (1 new, 1 modified)" in text
    assert "store.py new in this chapter" in text
    assert "counter.py modified in this chapter" in text
    folded = "".join(re.findall(r"<details>.*?</details>", html))
    assert "deep/" in folded and "(1 file, unchanged)" in plain(folded)
    assert "1 unchanged file" in plain(folded)
    assert "store.py" not in folded and "counter.py" not in folded


def test_example_output_and_tests_are_shown(course: PageCourse):
    text = shown(
        course, 1, "::: example\n\n::: output\n\n::: test test_counts_add_up\n"
    )
    assert "print(Counter().add(3))" in text
    assert re.search(r"examples/ch01_counter.py prints\s*3\n", text)
    assert "def test_counts_add_up" in text and "starts_at_nothing" not in text


def write_run(course: PageCourse, output: str, *, fingerprint: str = "") -> None:
    course.put("docs/runs/speed.py", "print(1)\n")
    course.put(
        "docs/runs/speed.toml",
        "about = 'how fast'\nchapter = 1\n[figures]\nms = 'took (\\S+) ms'\n",
    )
    right = Run.load(course.root, "speed").fingerprint(course.root)
    data = {
        "fingerprint": fingerprint or right,
        "command": "python docs/runs/speed.py",
        "date": "2026-01-31",
        "machine": "a machine",
        "output": output,
    }
    course.put("docs/runs/speed.json", json.dumps(data))


def test_a_recorded_run_is_shown_with_its_machine_and_its_figures(course: PageCourse):
    write_run(course, "it took 1.5 ms\n")
    text = shown(course, 1, "::: run speed\n\nThat is {{run:speed.ms}} ms.\n")
    assert "it took 1.5 ms" in text and "That is 1.5 ms." in text
    assert "(2026-01-31, a machine)" in text


def test_a_run_has_its_script_folded_below_its_output(course: PageCourse):
    write_run(course, "it took 1.5 ms\n")
    course.pages[0] = "::: run speed\n"
    html = course.write().html(1)
    folded = re.search(r"<details><summary>.*</details>", html, re.DOTALL)[0]
    assert plain(folded).strip() == "docs/runs/speed.pyprint(1)"


def test_a_self_test_folds_its_answers(course: PageCourse):
    course.pages[0] = "::: self-test\n1. Why?\n2. How?\n---\n1. So.\n2. Thus.\n:::\n"
    html = course.write().html(1)
    folded = re.search(r"<details.*</details>", html, re.DOTALL)[0]
    assert "So." in folded and "Why?" not in folded
    assert html.count("<li>") == 4


def test_an_exercise_has_what_the_script_looks_for(course: PageCourse):
    course.add_problem()
    course.pages[1] = "::: exercise counter-add\n"
    html = course.write().html(2)
    assert 'class="exercise" id="exercise-counter-add"' in html
    assert 'data-slug="counter-add" data-chapter="2"' in html
    assert '<h3 class="exercise-title">A counter that refuses' in html
    statement = html.partition('class="exercise-statement">')[2]
    assert "<code>add(count)</code>" in statement  # Markdown was made HTML
    assert re.search(r'class="exercise-starter">.*<pre>.*</pre>', html, re.DOTALL)


def test_all_exercises_are_listed_by_chapter(course: PageCourse):
    course.add_problem()
    course.extra["docs/practice.md"] = "::: problems\n"
    course.write()
    renderer = Renderer(course.contents)
    page = course.contents.page("docs/practice.md")
    html = renderer.directive(page, page.directives[0])
    assert "Chapter 2: The store" in html
    assert 'href="site-root:02_store/#exercise-counter-add"' in html
    assert 'class="exercise-progress"' in html


def test_a_map_has_every_chapter_under_its_part(course: PageCourse):
    lines = "::: map\n1 | Python | counting\n2 | chapter 1 | keeping\n"
    course.extra["docs/index.md"] = f"{lines}:::\n"
    course.write()
    assert course.faults("directives") == ["docs/index.md:1: ::: map lacks chapter 3"]
    course.put("docs/index.md", f"{lines}3 | chapter 2 | telling\n:::\n")
    assert course.faults("directives") == []


def test_what_is_omitted_is_listed_with_its_reason(course: PageCourse):
    text = "::: omitted\ncounter.py Counter.add: as `usual`\n:::\n"
    course.pages[0] = text
    html = course.write().html(1)
    assert "Not shown on this page (1)" in html
    assert re.search(r"<details.*Counter\.add.*<code>usual</code>", html, re.DOTALL)


# --- inline ---------------------------------------------------------------------------


def test_inline_figures_and_names_are_put_in(course: PageCourse):
    line = 'It prints {{out:3}}, {{given: 7, "a book"}}, {{eg: 4000}} and '
    line += '{{elsewhere: Store._get_, "SGLang"}}.\n'
    course.pages[0] = line
    html = course.write().html(1)
    assert plain(html).strip() == "It prints 3, 7, 4000 and Store._get_."
    assert 'title="a book"' in html
    assert re.search(r"<code title=.[^>]*SGLang.>Store\._get_</code>", html)


def test_inline_markers_in_code_style_are_left_alone(course: PageCourse):
    text = "Write `{{run:key.name}}` and ``{{x}} ` ``.\n\n::: output\n"
    assert "Write {{run:key.name}} and {{x}} `." in shown(course, 1, text)


# --- markers are never published ------------------------------------------------------


@pytest.mark.parametrize("fence", ["```", "~~~~", "````md"])
def test_a_directive_in_a_fenced_block_is_an_example(course: PageCourse, fence: str):
    close = fence.rstrip("md")
    inside = "::: code nowhere.py\n{{run:none}}\n:: x"
    text = shown(course, 1, f"{fence}\n{inside}\n{close}\n\n::: output\n")
    assert "::: code nowhere.py\n{{run:none}}\n:: x" in text


def test_a_shorter_fence_does_not_end_a_longer_one(course: PageCourse):
    text = shown(course, 1, "````\n```\n::: code x.py\n```\n````\n\n::: output\n")
    assert "```\n::: code x.py\n```" in text


def test_text_right_below_a_listing_stays_a_list(course: PageCourse):
    course.pages[0] = "Above\n::: code counter.py Counter.add\n- one\n- two\n"
    html = course.write().html(1)
    assert "<p>Above</p>" in html
    assert re.search(r"</figure>\s*<ul>\s*<li>one</li>", html)


def test_front_matter_that_the_builder_cuts_off_still_counts(course: PageCourse):
    front = "---\ntitle: The counter\n---\n"
    course.pages[0] = f"{front}\n::: code counter.py Nothing\n"
    course.write()
    with pytest.raises(PageError, match=r"docs/01_counter\.md:5: .*has no Nothing"):
        course.html(1, front)


def test_front_matter_does_not_come_back(course: PageCourse):
    front = "---\ntitle: Hidden\n---\n"
    course.pages[0] = f"{front}\n::: output\n"
    assert "Hidden" not in course.write().html(1, front)


@pytest.mark.parametrize(
    ("printed", "value", "is_there"),
    [
        ("46,080 bytes", "46,080", True),
        ("46 080", "080", True),
        ("4608", "460", False),
        ("4608", "608", False),
        ("3.25", "25", False),
        ("took 12 ms", "12 ms", True),
        ("125 and 25", "25", True),
    ],
)
def test_a_number_must_be_printed_as_a_whole(
    course: PageCourse, printed: str, value: str, is_there: bool
):
    course.examples[0] = ("x = 1\n", printed + "\n")
    course.pages[0] = f"{{{{out:{value}}}}}\n"
    course.write()
    assert (course.faults("directives") == []) is is_there


# the page of chapter 1 -> what is wrong with it: line, and a part of the message
BAD = {
    "# A\n\n::: code conter.py\n": "3: stage 1 has no conter.py; did you mean .*cou",
    "::: code store.py\n": "1: stage 1 has no store.py",
    "::: code counter.py Counter.ad\n": "1: .*ad here; did you mean Counter.add",
    "::: code counter.py adds\n": "1: .*has no adds here; did you mean Counter.add",
    '::: code counter.py Counter.add from="self.total"\n': "1: .*2 lines of .* hold",
    '::: code counter.py from="self.totl += count"\n': "1: .*no line .*you mean self",
    '::: code counter.py from="def add" to="__init__"\n': "1: .*no line .*to='__in",
    '::: code counter.py Counter.add Counter.__init__ from="a"\n': "1: .*one name only",
    "::: code\n": "1: ::: code takes PATH",
    "::: code counter.py 'Counter.add\n": "1: a quote is not closed",
    "::: code counter.py until=3\n": "1: ::: code takes from=.* not until=",
    "::: diff store.py\n": "1: stage 1 has no store.py",
    "::: diff\n": "1: ::: diff takes PATH",
    "::: files all\n": "1: ::: files takes nothing, not all",
    "::: test test_counts_ad_up\n": "1: .*did you mean test_counts_add_up",
    "::: run nothing\n": "1: there is no docs/runs/nothing.toml",
    "::: exercise counter-ad\n": "1: there is no practice/problems/counter-ad; did y",
    "::: cod counter.py\n": "1: there is no directive ::: cod; did you mean code",
    ":::code counter.py\n": "1: ':::code counter.py' is no directive",
    "  ::: code counter.py\n": "1: '::: code counter.py' is no directive",
    ":: code counter.py\n": "1: ':: code counter.py' is no directive",
    "text\n:::\n": "2: ::: ends no block",
    "::: self-test\n1. Why?\n": "1: ::: self-test is not closed",
    "::: self-test\n:::\n": "1: ::: self-test is empty",
    "::: self-test\n1. Why?\n:::\n": "1: .*needs one line ---",
    "::: self-test\n1. A?\n2. B?\n---\n1. A.\n:::\n": "1: .*2 questions and 1 answers",
    "::: draw\nroot\n:::\n": "1: ::: draw takes one caption",
    '::: draw "x"\nroot\n    [1]\n:::\n': "3: indent by two blanks",
    '::: draw "x"\nroot {nwe}\n:::\n': "2: {nwe} is none of the marks",
    "::: omitted\ncounter.py Counter.add\n:::\n": "2: .*is not `PATH NAME: reason`",
    "::: omitted\n\ncounter.py Counter.ad: x\n:::\n": "3: .*did you mean Counter.add",
    "{{run:speed}}\n": "1: .*must be run:KEY.figure",
    "{{run:speed.ms}}\n": "1: there is no docs/runs/speed.toml",
    "{{out:4}}\n": "1: examples/ch01_counter.out does not print 4",
    "{{given: 7}}\n": "1: .*given needs its source",
    '{{out:3, "here"}}\n': "1: .*out takes no source",
    "{{runs:a.b}}\n": "1: .* is none of",
    "{{ open\n": "1: .*must be on one line",
}


@pytest.mark.parametrize("text", BAD, ids=range(len(BAD)))
def test_what_cannot_be_shown_is_named_with_page_and_line(
    course: PageCourse, text: str
):
    course.add_problem()
    course.pages[0] = text
    course.write()
    found = course.faults("directives")
    assert len(found) == 1, found
    assert re.match(r"docs/01_counter\.md:" + BAD[text], found[0]), found
    with pytest.raises(PageError, match=re.escape(found[0])):
        course.html(1)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("::: output\n", "there is nothing in it to show"),
        ("::: code empty.py\n", "there is nothing in it to show"),
        ("::: code bare.py :head\n", "there is nothing in it to show"),
    ],
)
def test_a_region_that_is_empty_is_refused(course: PageCourse, text: str, what: str):
    course.examples[0] = ("x = 1\n", "\n")
    for stage in course.stages:
        stage["minisgl/empty.py"] = "\n"
        stage["minisgl/bare.py"] = "def f():\n    return 1\n"
    course.pages[0] = text
    course.write()
    assert [what in fault for fault in course.faults("directives")] == [True]


def test_a_recording_that_is_stale_does_not_count(course: PageCourse):
    write_run(course, "it took 1.5 ms\n", fingerprint="0" * 16)
    course.pages[0] = "::: run speed\n"
    course.write()
    assert "was recorded before its command" in course.faults("directives")[0]


@pytest.mark.parametrize("output", ["nothing\n", "took 1 ms, took 2 ms\n"])
def test_a_figure_is_printed_once(course: PageCourse, output: str):
    write_run(course, output)
    course.pages[0] = "{{run:speed.ms}}\n"
    course.write()
    assert "figure ms matches the recorded output" in course.faults("directives")[0]


def test_two_pages_with_one_text_cannot_be_told_apart(course: PageCourse):
    course.pages[1] = course.pages[0]
    course.write()
    with pytest.raises(CourseError, match="01_counter.md and docs/02_store.md"):
        course.html(2)


def test_directives_of_a_chapter_need_a_chapters_page(course: PageCourse):
    course.extra["docs/extra.md"] = "::: files\n"
    course.write()
    assert (
        "docs/extra.md:1: this is no chapter's page" in course.faults("directives")[0]
    )


# --- drawings -------------------------------------------------------------------------


def test_a_drawing_says_in_words_what_its_marks_show():
    lines = ["root", "  [1,2] | lock 1 {locked}", "    [3] {hit} {new}", "  [7,8]"]
    svg = draw(parse_tree(lines), "A tree & more")
    assert 'role="img"' in svg and "<title>A tree &amp; more</title>" in svg
    assert "<desc>root ([1,2] lock 1 locked ([3] hit, new); [7,8])</desc>" in svg
    assert svg.count("<rect") == 4 and svg.count('class="tree-edge"') == 3
    assert re.search(r"tree-hit tree-new.*>hit, new</text>", svg)


def test_a_drawing_is_not_cut_at_its_edges():
    svg = draw(parse_tree(["a wide root | x {hit}", "  [1,2]", "  w"]), "x")
    left, top, width, height = map(float, re.search('viewBox="(.*?)"', svg)[1].split())
    for box in re.findall(
        r'<rect x="(.*?)" y="(.*?)" rx="5" width="(.*?)" height="(.*?)"', svg
    ):
        x, y, w, h = map(float, box)
        assert left + 2 <= x and x + w + 2 <= left + width
        assert top + 2 <= y and y + h + 2 <= top + height


def test_boxes_of_a_drawing_do_not_overlap():
    lines = ["root", "  a long name of a node", "    x", "  y", "    z | note", "    w"]
    boxes = [
        tuple(map(float, box))
        for box in re.findall(
            r'<rect x="(-?\d+)" y="(\d+)" rx="5" width="(\d+)" height="(\d+)"',
            draw(parse_tree(lines), "x"),
        )
    ]
    assert len(boxes) == 6
    for i, (x, y, w, h) in enumerate(boxes):
        for u, v, a, b in boxes[i + 1 :]:
            assert x + w <= u or u + a <= x or y + h <= v or v + b <= y
