"""Finds a Chromium to test the pages with. Nothing is downloaded."""

from __future__ import annotations

import os
import shutil

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str | None:
    """The path of $MINISGL_CHROMIUM, or of the first Chromium on the PATH."""
    if named := os.environ.get("MINISGL_CHROMIUM"):
        return named
    return next(filter(None, map(shutil.which, _NAMES)), None)
