"""Compile Pyodide's standard library for this very interpreter, inside Pyodide.

npm has it as sources, which every worker of every page would compile again: Python
starts in half the time from bytecode. /work/python_stdlib.zip is replaced by
/work/out/python_stdlib.zip; the same input gives the same bytes.
"""

from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from pyodide_build._py_compile import _py_compile_archive

compiled = _py_compile_archive(Path("/work/python_stdlib.zip"), keep=False)
Path("/work/out").mkdir()
with ZipFile(compiled) as old, ZipFile("/work/out/python_stdlib.zip", "w") as new:
    for name in sorted(old.namelist()):
        info = ZipInfo(name)  # with a fixed date
        new.writestr(info, old.read(name), ZIP_DEFLATED, compresslevel=9)
