"""MkDocs: what the site has besides its pages, and one report of all their faults.

Directives do not depend on this: they are a Python-Markdown extension. What is here
another builder does its own way: it copies the same files into the finished site.
"""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.config_options import ExtraScriptValue
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from course.errors import CourseError
from course.manifest import Course
from course.pages.check import Checker
from course.pages.content import Contents
from course.pages.site_files import BROWSER, browser_files, site_files


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Pages load the scripts of exercises and drawings if they have been built."""
    if browser_files(_root(config)):
        for name in ("exercise", "live"):
            script = ExtraScriptValue(f"{BROWSER}/{name}.js")
            script.type = "module"
            config.extra_javascript.append(script)
            config.extra_css.append(f"{BROWSER}/{name}.css")
    return config


def on_pre_build(config: MkDocsConfig) -> None:
    """Stop before anything is written, with every fault of every page."""
    try:
        faults = list(Checker(Contents(Course.load(_root(config)))).directives())
    except CourseError as error:
        raise PluginError(f"{error.message}\n  next: {error.hint}") from None
    if faults:
        said = "\n".join(f"{fault.message}\n  next: {fault.hint}" for fault in faults)
        raise PluginError(f"pages show what is not there:\n{said}")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of whole files, and the files that the browser runs."""
    root = _root(config)
    for path, text in site_files(Contents(Course.load(root))):
        files.append(File.generated(config, path, content=text))
    for path, file in browser_files(root):
        files.append(File.generated(config, path, abs_src_path=str(file)))
    return files


def _root(config: MkDocsConfig) -> Path:
    return Path(config.config_file_path).resolve().parent
