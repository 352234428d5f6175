"""Python in the page: answers are graded by a worker that can always be replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from support.browser import FREE_LIST, Server, problem_json, urls_asked, watched_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

pytest_plugins = ["support.browser_fixtures"]
pytestmark = pytest.mark.browser

TAKE = "    def take(self) -> int | None:\n"
SOLUTION = FREE_LIST.solution
NUM_WORKERS = 2  # one that answers, one that waits
TEST_SECONDS = 1

START = """async ({ problem, seconds }) => {
  const { createRuntime } = await import("/runtime.js");
  window.problem = problem;
  window.runtime = createRuntime({
    base: "/", chapter: 3, limits: { testSeconds: seconds },
  });
  window.grade = async (answer) => {
    const seen = [];
    const onTest = (record) => seen.push(record.name);
    return { ...await runtime.run(problem, answer, { onTest }), seen };
  };
  await runtime.warm();
}"""

Result = dict[str, Any]
Grade = Callable[[str], Result]


@pytest.fixture(scope="module")
def shared_page(profile: BrowserContext, server: Server) -> Iterator[Page]:
    """One page with a warm runtime for all tests that leave it usable."""
    with watched_page(profile, server) as page:
        start(page)
        yield page


@pytest.fixture
def grade(shared_page: Page) -> Grade:
    """Grade an answer to the free list; the next right answer must still pass."""
    return lambda answer: shared_page.evaluate("grade", answer)


def start(page: Page) -> None:
    asked = {"problem": problem_json(FREE_LIST), "seconds": TEST_SECONDS}
    page.evaluate(START, asked)


def with_take(body: str) -> str:
    """The solution with these lines at the begin of `take`."""
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    assert TAKE in SOLUTION
    return SOLUTION.replace(TAKE, TAKE + lines)


def statuses(result: Result) -> list[str]:
    return [test["status"] for test in result["tests"]]


def test_a_right_answer_is_accepted_test_by_test(grade: Grade):
    result = grade(SOLUTION)
    assert result["status"] == "accepted"
    assert result["checks"] == {"planned": 26, "executed": 26}
    assert result["seen"] == [test["name"] for test in result["tests"]]
    assert len(result["seen"]) == 3


def test_a_wrong_answer_is_rejected_with_its_message(grade: Grade):
    for name, answer in FREE_LIST.wrong_answers.items():
        result = grade(answer)
        assert result["status"] == "rejected"
        said = [result["message"], *(str(test) for test in result["tests"])]
        assert any(FREE_LIST.wrong[name] in text for text in said), name


def test_what_one_run_changes_the_next_does_not_find(grade: Grade):
    spoil = SOLUTION + (
        "import builtins, heapq, sys, minisgl.core\n"
        "def helper(): pass\n"
        "heapq.heappop = builtins.len = helper\n"
        "minisgl.core.helper = heapq.helper = helper\n"
        "sys.path.clear(); sys.modules['spoiled'] = sys\n"
    )
    assert grade(spoil)["status"] == "rejected"
    assert grade(SOLUTION)["status"] == "accepted"
    for left in (
        "helper()",
        "import heapq; heapq.helper",
        "import minisgl.core; minisgl.core.helper",
        "import spoiled",
    ):
        result = grade(f"{SOLUTION}\n{left}\n")
        assert result["status"] == "rejected"
        assert "Error" in result["message"], left


def test_an_answer_that_writes_files_of_python_costs_its_worker(grade: Grade):
    name = "import os, sys\nname = os.path.join(sys.path[0], 'heapq.py')\n"
    shadow = f"{name}open(name, 'w').write('spoiled = 1')\n"
    assert grade(SOLUTION + shadow)["status"] == "accepted"
    look = f"{name}assert not os.path.exists(name)\n"
    assert grade(SOLUTION + look)["status"] == "accepted"


LOOPS = {
    "a loop": "while True: pass",
    "a loop that prints": "while True: print('again and again')",
    "a sleep": "import time; time.sleep(600)",
    "one long call in C": "sum(range(10**14))",
    "a loop that catches everything": (
        "while True:\n    try:\n        while True: pass\n    except: pass"
    ),
    "an eviction that frees nothing": (
        "pages = [1]\nwhile pages: pages = [page for page in pages]"
    ),
}


@pytest.mark.parametrize("loop", LOOPS.values(), ids=LOOPS.keys())
def test_what_never_ends_is_stopped_and_named(shared_page: Page, loop: str):
    page = shared_page
    page.evaluate("window.beats = 0; window.pulse = setInterval(() => beats++, 20)")
    result, seconds = page.evaluate(
        """async (answer) => {
          const begin = performance.now();
          const result = await grade(answer);
          return [result, (performance.now() - begin) / 1000];
        }""",
        with_take(loop),
    )
    beats = page.evaluate("clearInterval(pulse), beats")
    assert statuses(result) == ["timed out", "not run", "not run"]
    assert result["status"] == "rejected"
    assert result["message"] == "hands out pages in order: did not end within 1 s"
    assert TEST_SECONDS <= seconds < TEST_SECONDS + 5
    assert beats > 10  # the page went on
    assert all(len(test["output"]) <= 5_000 for test in result["tests"])
    assert page.evaluate("grade", SOLUTION)["status"] == "accepted"


def test_results_before_a_hang_are_kept(grade: Grade):
    hang = "while True: print(page)"
    result = grade(SOLUTION.replace("self.out.remove(page)", hang))
    assert result["status"] == "rejected"
    assert statuses(result) == ["passed", "timed out", "not run"]
    assert result["seen"] == ["hands out pages in order"]
    assert result["tests"][1]["output"].startswith("0\n0\n")


def test_the_limit_is_for_each_test(grade: Grade):
    slow = """
import time
class FreeList(FreeList):
    def __init__(self, num_pages):
        time.sleep(0.5)
        super().__init__(num_pages)
"""
    result = grade(f"{SOLUTION}\n{slow}")
    assert sum(test["time_ms"] for test in result["tests"]) > TEST_SECONDS * 1000
    assert result["status"] == "accepted"


def test_an_answer_that_hangs_while_it_is_loaded_is_named(grade: Grade):
    result = grade(f"{SOLUTION}\nwhile True: pass\n")
    assert result["message"] == "loading your answer: did not end within 1 s"
    assert statuses(result) == ["not run"] * 3


def test_a_failure_that_was_met_before_a_hang_is_shown(grade: Grade):
    """The third test fails, and the answer hangs when its operations are shrunk."""
    third = """
made = 0
class FreeList(FreeList):
    def __init__(self, num_pages):
        global made
        made += 1
        super().__init__(num_pages)
    def take(self):
        while made > 3: pass
        return 7 if made == 3 else super().take()
"""
    result = grade(f"{SOLUTION}\n{third}")
    assert statuses(result) == ["passed", "passed", "failed"]
    assert result["message"].endswith("its turn: did not end within 1 s")
    failed = result["tests"][2]
    assert failed["failure"]["actual"] == "7"
    assert failed["message"].endswith("; got 7")


DEEP = {
    "unbounded": "return self.take()",
    "through C": "import functools; return functools.partial(self.take)()",
    "a chain of 1,500 nodes": (
        "def depth(node): return 1 + depth(node[0]) if node else 0\n"
        "chain = []\n"
        "for _ in range(1500): chain = [chain]\n"
        "depth(chain)"
    ),
    "in a repr": "x = []\nfor _ in range(10**5): x = [x]\nrepr(x)",
}


@pytest.mark.parametrize("body", DEEP.values(), ids=DEEP.keys())
def test_recursion_too_deep_is_a_verdict(grade: Grade, body: str):
    result = grade(with_take(body))
    assert result["status"] != "accepted"
    assert "recursion too deep" in result["tests"][0]["message"]
    assert grade(SOLUTION)["status"] == "accepted"


def test_caught_recursion_is_the_answers_own_affair(grade: Grade):
    caught = "def deep(): deep()\ntry: deep()\nexcept RecursionError: pass"
    assert grade(with_take(caught))["status"] == "accepted"


@pytest.mark.parametrize(
    "leave", ["import sys; sys.exit(0)", "import os; os._exit(0)", "raise SystemExit"]
)
def test_leaving_early_is_not_a_pass(grade: Grade, leave: str):
    for answer in (with_take(leave), f"{SOLUTION}\n{leave}\n"):
        assert grade(answer)["status"] != "accepted"
    assert grade(SOLUTION)["status"] == "accepted"


@pytest.mark.parametrize(
    "module", ["js", "pyodide_js", "pyodide.code", "_pyodide_core"]
)
def test_an_answer_cannot_reach_javascript(grade: Grade, module: str):
    result = grade(f"{SOLUTION}\nimport {module}\n")
    assert result["status"] == "rejected"
    assert "ModuleNotFoundError" in result["message"]


def test_too_much_memory_is_an_error_of_one_test(grade: Grade):
    result = grade(with_take("[0] * (1 << 30)"))
    assert "out of memory" in result["tests"][0]["message"]
    assert grade(SOLUTION)["status"] == "accepted"


def test_runs_asked_for_at_once_come_one_after_another(shared_page: Page):
    results = shared_page.evaluate(
        "(answers) => Promise.all(answers.map(grade))", [SOLUTION, "", SOLUTION]
    )
    verdicts = [result["status"] for result in results]
    assert verdicts == ["accepted", "rejected", "accepted"]


def test_a_stopped_run_says_so_and_the_next_one_runs(shared_page: Page):
    name = shared_page.evaluate(
        """async (answer) => {
          const run = runtime.run(problem, answer, { onPlan: () => runtime.stop() });
          return run.catch((error) => error.name);
        }""",
        with_take("while True: pass"),
    )
    assert name == "Stopped"
    assert shared_page.evaluate("grade", SOLUTION)["status"] == "accepted"


def test_the_spare_takes_over_at_once(shared_page: Page):
    shared_page.wait_for_function("runtime.hasSpare")
    won, ready_ms = shared_page.evaluate(
        """async ({ hang, solution }) => {
          await grade(hang);
          const begin = performance.now();
          const timer = new Promise((resolve) => setTimeout(resolve, 0, "the clock"));
          const won = await Promise.race([runtime.warm().then(() => "Python"), timer]);
          await grade(solution);
          return [won, performance.now() - begin];
        }""",
        {"hang": with_take("while True: pass"), "solution": SOLUTION},
    )
    print(f"a stopped run to the next graded result: {ready_ms:.0f} ms")
    assert won == "Python"


def test_the_chapters_own_python_can_be_called(page: Page):
    steps = page.evaluate(
        """async () => {
          const { pageRuntime } = await import("/runtime.js");
          const operations = ["insert 1 2 3", "lock 1 2", "evict 3", "evict 1"];
          return pageRuntime(8).python("radix.run", { operations });
        }"""
    )["steps"]
    assert [step["says"] for step in steps] == [
        "Nothing has been done yet.",
        "0 of 3 tokens were there already.",
        "Receipt 1 protects 2 tokens.",
        "",
        "Slots [2] are free again.",
    ]
    assert steps[3]["error"].startswith("EvictionError: cannot evict 3 tokens")
    assert steps[2]["sizes"] == ["evictable 1", "protected 2"]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("radix.run", "KeyError"),
        ("radix.other", "AttributeError"),
        ("nowhere.run", "ModuleNotFoundError"),
    ],
)
def test_an_error_of_a_call_has_the_name_of_its_exception(
    shared_page: Page, call: str, name: str
):
    shared_page.evaluate("import('/runtime.js').then((m) => { window.page8 = m; })")
    got = shared_page.evaluate(
        "(call) => page8.pageRuntime(8).python(call, {}).catch((e) => e.name)", call
    )
    assert got == name
    shared_page.evaluate("page8.leavePage()")


def test_two_workers_live_and_none_after_leaving(page: Page):
    start(page)
    page.evaluate("grade", SOLUTION)
    assert workers(page, NUM_WORKERS)
    page.evaluate("grade", with_take("while True: pass"))
    assert workers(page, NUM_WORKERS)
    page.evaluate("runtime.dispose()")
    assert workers(page, 0)

    page.evaluate("import('/runtime.js').then((m) => m.pageRuntime(3).warm())")
    assert workers(page, NUM_WORKERS)
    page.evaluate("dispatchEvent(new PageTransitionEvent('pagehide'))")
    assert workers(page, 0)


def workers(page: Page, wanted: int) -> bool:
    """Whether so many workers live in the end; a busy one takes a while to die."""
    for _ in range(100):
        page.wait_for_timeout(100)
        if len(page.workers) == wanted:
            page.wait_for_timeout(300)  # and no other one comes
            return len(page.workers) == wanted
    return False


def test_a_load_that_never_ends_is_given_up(page: Page, server: Server):
    server.overlay["/worker.js"] = ""
    said = page.evaluate(
        """async () => {
          const { createRuntime } = await import("/runtime.js");
          const limits = { loadSeconds: 0.2 };
          const runtime = createRuntime({ base: "/", chapter: 3, limits });
          return runtime.warm().catch((error) => [error.name, error.message]);
        }"""
    )
    del server.overlay["/worker.js"]
    assert said == [
        "NoRuntime",
        "Python cannot be loaded here: not there after 0.2 s",
    ]


def test_a_request_of_a_worker_would_be_noticed(chromium: Browser, server: Server):
    """The check of every page above: it sees what workers ask for, too."""
    context = chromium.new_context()
    asked = urls_asked(context)
    page = context.new_page()
    page.goto(f"{server.url}/empty.html")
    page.evaluate(
        """() => new Promise((resolve) => {
          const code = "fetch('http://elsewhere.invalid/').catch(() => postMessage(1))";
          const url = URL.createObjectURL(new Blob([code]));
          new Worker(url).onmessage = resolve;
        })"""
    )
    context.close()
    assert "http://elsewhere.invalid/" in asked
