"""One core, two places: the page and the command line say the same of every answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from support.browser import FREE_LIST, REPO, Server, problem_json, watched_page

from practice import sandbox
from practice.problems import Problem, load_all

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

pytest_plugins = ["support.browser_fixtures"]
pytestmark = pytest.mark.browser

Result = dict[str, Any]

GRADE = """async ({ problem, answer }) => {
  const { pageRuntime } = await import("/runtime.js");
  return pageRuntime(problem.chapter).run(problem, answer);
}"""


def answers(problem: Problem) -> dict[str, str]:
    named = {"solution": problem.solution, "starter": problem.starter, "empty": ""}
    return named | {f"wrong/{n}": a for n, a in problem.wrong_answers.items()}


# By chapter: a page has one stage at a time.
PROBLEMS = sorted([*load_all(REPO), FREE_LIST], key=lambda p: (p.chapter, p.slug))
CASES = {
    f"{problem.slug}-{name}": (problem, answer)
    for problem in PROBLEMS
    for name, answer in answers(problem).items()
}


@pytest.fixture(scope="module")
def shared_page(profile: BrowserContext, server: Server) -> Iterator[Page]:
    with watched_page(profile, server) as page:
        yield page


@pytest.fixture(scope="module")
def on_command_line() -> Iterator[Callable[[str], Result]]:
    """The judge's results. They are computed ahead, while the browser works."""
    with ThreadPoolExecutor(1) as ahead:
        asked = {n: ahead.submit(sandbox.grade, REPO, *c) for n, c in CASES.items()}
        yield lambda name: asked[name].result()
        ahead.shutdown(cancel_futures=True)


@pytest.mark.parametrize("case", CASES)
def test_the_page_and_the_judge_agree(
    shared_page: Page, on_command_line: Callable[[str], Result], case: str
):
    problem, answer = CASES[case]
    asked = {"problem": problem_json(problem), "answer": answer}
    in_page = shared_page.evaluate(GRADE, asked)
    assert comparable(in_page) == comparable(on_command_line(case))


def comparable(value: Any) -> Any:
    """A result without what differs between versions of Python, and times.

    Since 3.12, `sum` of floats rounds less; and RecursionError says what it was doing.
    """
    if isinstance(value, dict):
        return {k: comparable(v) for k, v in value.items() if k != "time_ms"}
    if isinstance(value, list):
        return [comparable(item) for item in value]
    if not isinstance(value, str):
        return value
    text = re.sub(r"(recursion depth exceeded) [\w ]+", r"\1", value)
    text = re.sub(r"\d+\.\d{9,}", lambda number: f"{float(number[0]):.9g}", text)
    return text.partition("\nfirst difference:")[0] if text != value else text
