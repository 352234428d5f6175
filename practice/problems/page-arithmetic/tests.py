"""Page arithmetic: boundaries, scattered pages, and the way there and back."""

import random
from array import array

from grading import test

FULL = "a page that is exactly full needs no page behind it"
SIDE = "pages need not lie side by side: each page has its own range of slots"
ORDER = "the order of the pages is the order of the tokens: keep it"
LAST = "the last page may be partly filled, and it is the request's page all the same"


@test("how many pages", example=True)
def _(answer, check):
    for num_tokens, expected in [(6, 2), (4, 1), (5, 2)]:
        check.equal(
            answer.num_pages_for(num_tokens, 4),
            expected,
            call=f"num_pages_for({num_tokens}, 4)",
            look=FULL,
        )


@test("the slots of two pages", example=True)
def _(answer, check):
    check.equal(
        answer.slots_of_pages([5, 2], 4),
        array("i", [20, 21, 22, 23, 8, 9, 10, 11]),
        call="slots_of_pages([5, 2], 4)",
        look=SIDE,
    )


@test("the pages of some slots", example=True)
def _(answer, check):
    for slots, expected, look in [
        ([20, 21, 22, 23, 8, 9, 10, 11], [5, 2], ORDER),
        ([20, 21, 22, 23, 24, 25], [5, 6], LAST),
        ([20, 21, 22, 23, 8, 9], [5, 2], LAST),
    ]:
        check.equal(
            answer.pages_of_slots(slots, 4),
            expected,
            call=f"pages_of_slots({slots}, 4)",
            look=look,
        )


@test("pages change at multiples of their size")
def _(answer, check):
    for page_size in (1, 2, 16):
        check.equal(
            [answer.num_pages_for(n, page_size) for n in range(2 * page_size + 2)],
            [0, *[1] * page_size, *[2] * page_size, 3],
            call=f"num_pages_for(0 … {2 * page_size + 1}, {page_size})",
            look=FULL,
        )


@test("exact for numbers of any size")
def _(answer, check):
    big = 3 * 10**17
    for num_tokens, expected in [(big, big // 3), (big + 1, big // 3 + 1)]:
        check.equal(
            answer.num_pages_for(num_tokens, 3),
            expected,
            call=f"num_pages_for({num_tokens}, 3)",
            look="a division with / goes through a float, which has 53 bits; use //",
        )


@test("no pages, no slots")
def _(answer, check):
    for page_size in (1, 4):
        check.equal(
            answer.slots_of_pages([], page_size),
            array("i"),
            call=f"slots_of_pages([], {page_size})",
            look="a request without pages has no slots, and that is no error",
        )
        check.equal(
            answer.pages_of_slots([], page_size),
            [],
            call=f"pages_of_slots([], {page_size})",
            look="a request without slots has no pages, and that is no error",
        )


@test("any iterable of pages will do")
def _(answer, check):
    check.equal(
        answer.slots_of_pages((page for page in (3, 0, 1)), 2),
        array("i", [6, 7, 0, 1, 2, 3]),
        call="slots_of_pages((page for page in (3, 0, 1)), 2)",
        look="a generator can be walked through once, and has no len()",
    )
    pages = [3, 0, 1]
    answer.slots_of_pages(pages, 2)
    check.equal(
        pages,
        [3, 0, 1],
        call="pages = [3, 0, 1]; slots_of_pages(pages, 2); pages",
        look="the caller's list must stay as it was",
    )


@test("with pages of one slot, pages and slots are the same numbers")
def _(answer, check):
    check.equal(
        answer.slots_of_pages([7, 3, 5], 1),
        array("i", [7, 3, 5]),
        call="slots_of_pages([7, 3, 5], 1)",
        look=SIDE,
    )
    check.equal(
        answer.pages_of_slots(array("i", [7, 3, 5]), 1),
        [7, 3, 5],
        call='pages_of_slots(array("i", [7, 3, 5]), 1)',
        look=ORDER,
    )


@test("there and back, for requests on random pages")
def _(answer, check):
    rng = random.Random(3)
    for _ in range(20):
        page_size = rng.choice([1, 2, 3, 4, 16])
        num_tokens = rng.randint(1, 5 * page_size)
        count = -(-num_tokens // page_size)
        pages = rng.sample(range(50), count)
        check.equal(
            answer.num_pages_for(num_tokens, page_size),
            count,
            call=f"num_pages_for({num_tokens}, {page_size})",
            look=FULL,
        )
        slots = [page * page_size + i for page in pages for i in range(page_size)]
        check.equal(
            answer.slots_of_pages(pages, page_size),
            array("i", slots),
            call=f"slots_of_pages({pages}, {page_size})",
            look=SIDE,
        )
        slots = slots[:num_tokens]
        check.equal(
            answer.pages_of_slots(array("i", slots), page_size),
            pages,
            call=f'pages_of_slots(array("i", {slots}), {page_size})',
            look=ORDER,
        )
