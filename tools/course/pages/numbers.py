"""Numbers in prose: which of them must say where they come from.

A measurement that nobody made looks like one that somebody did. So a number in prose
comes through `{{run:…}}`, `{{out:…}}`, `{{given:…}}` or `{{eg:…}}`, unless it is a
small whole number that counts something, or the number of a thing (chapter 11).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

FREE = 20  # whole numbers up to this one count things; larger ones were measured

_THINGS = (
    "chapter|part|section|step|stage|exercise|question|case|figure|table|line|example|"
    "version|python|page|slot|row|column|layer|token|position|node|request|bit|rank"
)
# "chapters 8, 9 and 11", "pages 3 to 40": the number of a thing, not how many
_NUMBERED = re.compile(
    rf"\b(?:{_THINGS})s? \d+(?:\.\d+)*(?:(?:, | and | or | to |–|-)\d+(?:\.\d+)*)*\b",
    re.IGNORECASE,
)
# letters with digits in them: SmolLM2-135M, float32, Qwen3.5
_NAME = re.compile(r"(?<!\w)[A-Za-z_]+\d[\w.-]*\w|(?<!\w)[A-Za-z]+\d")
_LIST_NUMBER = re.compile(r"^[ >]*\d+[.)] ")
_HEADING_NUMBER = re.compile(r"^#+ \d+[.:]? ")
_BITS = re.compile(r"\b\d+-bit\b")
_LINK = re.compile(r"\]\([^)]*\)|\]\[[^]]*\]|<[a-z/][^>]*>|https?://\S+")
_NUMBER = re.compile(r"(?<![\w.])\d+(?:[,.\u202f]\d+)*")
_COMPARED = r"(?:faster|slower|quicker|cheaper|longer|shorter|fewer|less|more)"
# what makes of a number a measurement, however small it is
_MEASURES = (
    r"ns|µs|us|ms|s|sec|seconds?|minutes?|min|hours?|percent|per cent|[kKMGT]i?B|"
    r"tokens?/s|tokens? (?:per|a) second|[kMGT]?Hz|[MGT]?FLOPS?"
)
UNIT = re.compile(
    rf"\s?(?:(?:{_MEASURES})\b|%|×(?!\s?\d)|x\b(?!\s?[\d`{{]))|[- ]?fold\b|"
    rf" times (?:as|{_COMPARED})\b"
)
_WORDS = (
    "two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|fifty|"
    "hundred|thousand"
)
_IN_WORDS = re.compile(
    rf"\b(?:(?:{_WORDS})(?: times (?:as|{_COMPARED})|-?fold| percent| per cent| "
    rf"(?:milli|micro)?seconds)|twice as (?:fast|slow|quick|long)|half the time)\b",
    re.IGNORECASE,
)


def unsourced(line: str) -> Iterator[str]:
    """The numbers of a line of prose that must say where they come from.

    The line's code spans are blanked, and its `{{…}}` replaced by a bare `{}`.
    """
    for pattern in (_LINK, _LIST_NUMBER, _HEADING_NUMBER, _BITS, _NUMBERED, _NAME):
        line = pattern.sub(lambda m: " " * len(m[0]), line)
    for match in _NUMBER.finditer(line):
        unit = UNIT.match(line, match.end())
        if unit or not match[0].isdigit() or int(match[0]) > FREE:
            yield line[match.start() : unit.end() if unit else match.end()].strip()
    yield from (match[0] for match in _IN_WORDS.finditer(line))
