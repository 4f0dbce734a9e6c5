"""Builds `shared/loops.c`, the library of compiled loops, wherever the package is built.

The library needs nothing of Python, so one wheel for a platform serves every version. Without a C compiler the package
is built all the same, without loops, and says so: what cannot do without them ends with the error `kernels`.
"""

import os
import platform
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARY = "shared/libloops.so.1"
FLAGS = ("-std=gnu11", "-O3", "-funroll-loops", "-fwrapv", "-fPIC")
# what `level` of loops.c asks a processor for, and no more
V3 = ("-mavx2", "-mbmi2")
LEVELS = {
    "base": ("-DCHOOSES",),
    "v2": ("-mssse3", "-msse4.2"),
    "v3": V3,
    "v4": (*V3, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"),
}


class LoopsHook(BuildHookInterface[Any]):
    """An editable install has the library in the tree, a wheel has it from a folder of its own."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Hatchling calls this before it collects files."""
        root = Path(self.root)
        editable = version == "editable"
        self._folder = mkdtemp()
        built = Path(self._folder, "libloops.so.1")
        try:
            build(root / "shared" / "loops.c", built)
        except (OSError, subprocess.CalledProcessError) as error:
            self.app.display_warning(f"Commingle is built without compiled loops, for want of a C compiler: {error}")
            if editable:
                (root / LIBRARY).unlink(missing_ok=True)
            return
        build_data.update(pure_python=False, tag=f"py3-none-{_platform()}")
        if editable:
            draft = root / f"{LIBRARY}.draft"  # a process that has the library open keeps the one it has
            shutil.copyfile(built, draft)
            draft.replace(root / LIBRARY)
        else:
            build_data["force_include"][str(built)] = f"commingle/{LIBRARY}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """After the wheel is written."""
        del version, build_data, artifact_path
        shutil.rmtree(self._folder)


def build(source: Path, library: Path) -> None:
    """Raises OSError, CalledProcessError: there is no compiler, or it refuses."""
    compiler = _compiler()
    x86 = platform.machine().lower() in {"x86_64", "amd64"}
    with TemporaryDirectory() as folder:
        objects = []
        for level in LEVELS if x86 else ("base",):
            objects.append(f"{folder}/{level}.o")
            command = [*compiler, *FLAGS, *LEVELS[level], f"-DLEVEL={level}", "-c", str(source), "-o", objects[-1]]
            subprocess.run(command, check=True)
        subprocess.run([*compiler, "-shared", *objects, "-o", str(library)], check=True)


def _compiler() -> list[str]:
    if named := os.environ.get("CC"):
        return shlex.split(named)
    found = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if found is None:
        raise FileNotFoundError("neither cc, gcc nor clang is there, and CC names no other")
    return [found]


def _platform() -> str:
    """As in the name of a wheel: linux_x86_64, macosx_11_0_arm64."""
    if platform.system() != "Darwin":
        return sysconfig.get_platform().replace("-", "_").replace(".", "_")
    least = os.environ.get("MACOSX_DEPLOYMENT_TARGET", "11.0").replace(".", "_")
    return f"macosx_{least}_{platform.machine()}"
