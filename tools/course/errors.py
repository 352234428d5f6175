"""Errors a person can act on. Each carries what to do next."""

from __future__ import annotations


class CourseError(Exception):
    """Wrong use or a broken course file: the command line prints it and exits 2.

    Args:
        message: what is wrong, with the file, chapter and line it is about.
        hint: what to do next, a command where there is one.
    """

    exit_code = 2

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class CheckFailed(CourseError):
    """Everything ran, and something that must hold does not: exit code 1."""

    exit_code = 1
