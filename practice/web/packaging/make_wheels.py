"""Make one wheel per stage, compiled for this very interpreter. Runs inside Pyodide.

It reads /work/stages.json:

    {"version": "0.1.0", "info": {…of the lock file…},
     "stages": {"minisgl_stage08": {"minisgl/core.py": "the text", …}, …}}

and writes to /work/out one plain and one compiled wheel for each, the pyodide-lock.json
that lists the compiled ones, and python.json, which says what compiled them. The same
input gives the same bytes: this interpreter packs everything, whatever the machine
around it.
"""

import hashlib
import json
import re
import sys
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from zipfile import ZipFile

from pyodide_build._py_compile import _py_compile_archive_dir
from pyodide_lock import InfoSpec, PyodideLockSpec
from pyodide_lock.utils import add_wheels_to_spec
from wheel.wheelfile import WheelFile

OUT = Path("/work/out")


def write_wheel(path: Path, contents: dict[str, bytes]) -> None:
    """A wheel with a RECORD of its own, the files in order."""
    with WheelFile(path, "w") as wheel:
        for name in sorted(contents):
            wheel.writestr(name, contents[name])


def plain_wheel(name: str, version: str, files: dict[str, str]) -> Path:
    path = OUT / f"{name}-{version}-py3-none-any.whl"
    about = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    tags = "Wheel-Version: 1.0\nGenerator: minisgl\nRoot-Is-Purelib: true\n"
    contents = {path: text.encode() for path, text in files.items()}
    contents[f"{about}/METADATA"] = metadata.encode()
    contents[f"{about}/WHEEL"] = f"{tags}Tag: py3-none-any\n".encode()
    write_wheel(path, contents)
    return path


def mend(path: Path) -> None:
    """Give a compiled wheel the tag of its name, a fresh RECORD and fixed dates."""
    with ZipFile(path) as archive:  # a WheelFile would refuse the stale RECORD
        contents = {name: archive.read(name) for name in archive.namelist()}
    tag = "-".join(path.stem.split("-")[2:]).encode()
    for name in list(contents):
        if name.endswith(".dist-info/WHEEL"):
            contents[name] = re.sub(rb"(?m)^Tag: .*$", b"Tag: " + tag, contents[name])
        elif name.endswith(".dist-info/RECORD"):
            del contents[name]
    write_wheel(path, contents)


def main() -> None:
    asked = json.loads(Path("/work/stages.json").read_text())
    OUT.mkdir()
    plain = [plain_wheel(n, asked["version"], f) for n, f in asked["stages"].items()]

    lock_path = OUT / "pyodide-lock.json"
    empty = PyodideLockSpec(info=InfoSpec.from_dict(asked["info"]), packages={})
    add_wheels_to_spec(empty, plain).to_json(lock_path)
    _py_compile_archive_dir(OUT, verbose=False)  # also names them in the lock file

    lock = PyodideLockSpec.from_json(lock_path)
    for package in lock.packages.values():
        mend(OUT / package.file_name)
        content = (OUT / package.file_name).read_bytes()
        package.sha256 = hashlib.sha256(content).hexdigest()
    lock.check_wheel_filenames()
    lock.to_json(lock_path, indent=1)
    magic = int.from_bytes(MAGIC_NUMBER[:2], "little")
    python = {"version": sys.version.split()[0], "magic": magic}
    (OUT / "python.json").write_text(json.dumps(python))


main()
