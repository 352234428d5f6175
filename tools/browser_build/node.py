"""Node and npm: what `practice/web/package-lock.json` pins, installed and run."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from course.errors import CheckFailed, CourseError

_GET_NODE = "install Node.js 20 or newer with npm (https://nodejs.org), then try again"
_TIMEOUT_S = 600


class NodeTools:
    """The npm packages of `web` (a folder with package.json and a lock file).

    Raises `CourseError` when Node or npm is missing or too old, `CheckFailed` when
    one of them fails; both carry what it printed and what to do next.
    """

    def __init__(self, web: Path) -> None:
        self.web = web
        self.package = json.loads((web / "package.json").read_text())

    @property
    def pyodide(self) -> Path:
        """The folder of the installed npm package."""
        return self.web / "node_modules" / "pyodide"

    def install(self) -> None:
        """`npm ci`, unless these very packages are installed already."""
        self._check_node()
        stamp = self.web / "node_modules" / ".minisgl-lock"
        lock = self.web / "package-lock.json"
        digest = hashlib.sha256(lock.read_bytes()).hexdigest()
        if not (stamp.is_file() and stamp.read_text() == digest):
            self._run(
                [_find("npm"), "ci"],
                "npm could not install the packages of practice/web",
                "check that the npm registry can be reached (npm ping), then try again",
            )
            stamp.write_text(digest)
        self._check_versions()

    def bundle(self, entries: Sequence[str], dest: Path) -> None:
        """Bundle these files of src/ into `dest`, what they share into chunks/."""
        self._run(
            [
                _find("node"),
                "node_modules/esbuild/bin/esbuild",
                *(f"src/{entry}" for entry in entries),
                "--bundle",
                "--splitting",
                "--format=esm",
                "--minify",
                "--target=es2022",
                "--chunk-names=chunks/[name]-[hash]",
                "--log-level=warning",
                f"--outdir={dest}",
            ],
            "esbuild could not bundle practice/web/src",
            "mend the file that esbuild names",
        )

    def run_script(self, script: str, *arguments: str | Path) -> None:
        """Run a script of practice/web under Node."""
        self._run(
            [_find("node"), script, *map(str, arguments)],
            f"{script} failed",
            "read what it printed; practice/web/packaging pins what it works with",
        )

    def _check_node(self) -> None:
        wanted = int(re.search(r"\d+", self.package["engines"]["node"])[0])
        node = _find("node")
        said = subprocess.run([node, "--version"], capture_output=True, text=True)
        version = re.match(r"v(\d+)\.", said.stdout)
        if not version or int(version[1]) < wanted:
            raise CourseError(
                f"{node} is version {said.stdout.strip() or 'unknown'}; "
                f"practice/web needs {wanted} or newer",
                _GET_NODE,
            )
        _find("npm")

    def _check_versions(self) -> None:
        """Half an installation, or somebody's `npm install`, is found out here."""
        pinned = self.package["dependencies"] | self.package["devDependencies"]
        for name, wanted in pinned.items():
            installed = self.web / "node_modules" / name / "package.json"
            version = None
            if installed.is_file():
                version = json.loads(installed.read_text())["version"]
            if version != wanted:
                raise CheckFailed(
                    f"practice/web/node_modules has {name} {version or '(missing)'}, "
                    f"package.json pins {wanted}",
                    "rm -r practice/web/node_modules, then build again",
                )

    def _run(self, command: Sequence[str], failed: str, hint: str) -> None:
        try:
            done = subprocess.run(
                command,
                cwd=self.web,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            raise CheckFailed(f"{failed}: no end after {_TIMEOUT_S} s", hint) from None
        if done.returncode:
            raise CheckFailed(f"{failed}:\n{_last_lines(done)}", hint)


def _find(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise CourseError(
            f"{program} is not on the PATH; the pages' scripts are built with it",
            _GET_NODE,
        )
    return found


def _last_lines(done: subprocess.CompletedProcess[str]) -> str:
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return "\n".join(line[:500] for line in said[-15:])
