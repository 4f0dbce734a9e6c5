"""Calls loops that numba has compiled, without numba.

A process of its own compiles the loops of a module, once for a machine (`compiling.py`). What it makes is kept in a
folder, under a name that changes with sources, numba and processor, and LLVM's loader puts it into this process.
The folder is what NUMBA_CACHE_DIR names, else `__pycache__` beside the module, else the user's cache; where none can be
written each process has them compiled for itself. It holds machine code, so a folder or a file counts only where this
user or root owns it and nobody else may write it; what counts is what is open, not what has a name.
"""

import ctypes
import errno
import json
import logging
import os
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from stat import S_ISREG
from threading import Lock
from types import SimpleNamespace
from typing import Any

from llvmlite import binding

_DIGEST = 32
_OTHERS_MAY_WRITE = 0o022
_REMEDY = "make it yours alone (chown, chmod go-w), or name a folder that is with NUMBA_CACHE_DIR"
_SCALARS: dict[str, Any] = {"uint32": ctypes.c_uint32, "int64": ctypes.c_int64}
_LOADING = Lock()
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loop:
    """Called as numba calls it: addresses for a result and an error, then an array by its parts or an integer, each.

    Attributes:
        function: releases Python's lock for as long as it runs.
        types: of its arguments, and their dimensions.
        engine: has the code in its memory, for as long as anybody has the loop.
    """

    function: Callable[..., int]
    types: list[tuple[str, int]]
    engine: binding.ExecutionEngine

    def __call__(self, *arguments: Any) -> None:  # noqa: ANN401 - arrays and integers, as `types` says
        """Raises TypeError: an array of another type or layout than the loop was compiled for."""
        words: list[Any] = [ctypes.byref(ctypes.c_void_p()), ctypes.byref(ctypes.c_void_p())]
        for argument, (kind, dimensions) in zip(arguments, self.types, strict=True):
            words += _array(argument, kind, dimensions) if dimensions else [_SCALARS[kind](int(argument))]
        if status := self.function(*words):
            raise RuntimeError(f"a compiled loop ended with the status {status}")


def loops(module: str) -> SimpleNamespace:
    """The loops of a module by their names, compiled if they are not yet; raises what processes and LLVM raise."""
    with _LOADING:  # threads that ask at the same time would each load them
        return _loaded(module)


@cache
def _loaded(module: str) -> SimpleNamespace:
    described, _, code = (_kept(module) or _compiled(module)).partition(b"\n")
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), target())
    engine.add_object_file(binding.ObjectFileRef.from_data(code))
    engine.finalize_object()
    kind = ctypes.CFUNCTYPE(ctypes.c_int)
    symbols = json.loads(described).items()
    return SimpleNamespace(
        **{name: Loop(kind(engine.get_function_address(symbol)), types, engine) for name, (symbol, types) in symbols}
    )


def target() -> binding.TargetMachine:
    """This processor."""
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    cpu, features = binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()
    kind = binding.Target.from_default_triple()
    return kind.create_target_machine(cpu=cpu, features=features, opt=3, codemodel="jitdefault", jit=True)


def _array(array: Any, kind: str, dimensions: int) -> Iterator[ctypes.c_void_p | ctypes.c_ssize_t]:  # noqa: ANN401
    """Its owner and parent, which a loop that allocates nothing never reads; then size, place, shape and strides."""
    if array.dtype != kind or array.ndim != dimensions or not array.flags.carray:
        raise TypeError(f"a compiled loop takes {dimensions} dimensions of {kind}, writable and C-contiguous")
    yield from (ctypes.c_void_p(), ctypes.c_void_p())
    yield from map(ctypes.c_ssize_t, (array.size, array.itemsize))
    yield ctypes.c_void_p(array.ctypes.data)
    yield from map(ctypes.c_ssize_t, array.shape + array.strides)


def _kept(module: str) -> bytes | None:
    for folder in _folders(module):
        with suppress(OSError), _opened(folder) as directory:
            kept = _read(_name(module), directory, where=folder)
            if sha256(kept[_DIGEST:]).digest() == kept[:_DIGEST]:  # else a power cut came between
                return kept[_DIGEST:]
    return None


def _compiled(module: str) -> bytes:
    """By a process of its own; kept in the first folder that can be written and is nobody else's."""
    command = (sys.executable, "-P", "-m", "commingle.shared.compiling", module)
    made = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    for folder in _folders(module):
        with suppress(OSError):
            folder.mkdir(0o755, parents=True, exist_ok=True)
            with _opened(folder) as directory:
                if _is_own(directory):
                    _write(_name(module), sha256(made).digest() + made, directory)
                    return made
    _log.warning("%s is compiled in each process, as it is kept nowhere: %s", module, _REMEDY)
    return made


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield directory
    finally:
        os.close(directory)


def _is_own(descriptor: int) -> bool:
    """Whether nobody but this user and root can have written what is open, whatever has its name by now."""
    found = os.fstat(descriptor)
    return found.st_uid in {0, os.geteuid()} and not found.st_mode & _OTHERS_MAY_WRITE


def _read(name: str, directory: int, *, where: Path) -> bytes:
    """Raises OSError: there is no such file, or it or its folder is not this user's alone."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    with os.fdopen(descriptor, "rb") as file:
        if not (S_ISREG(os.fstat(descriptor).st_mode) and _is_own(descriptor) and _is_own(directory)):
            _log.warning("%s is not used, others may have written it: %s", where / name, _REMEDY)
            raise PermissionError(errno.EACCES, "others may have written it", name)
        return file.read()


def _write(name: str, code: bytes, directory: int) -> None:
    """Whole or not at all."""
    draft = f".{name}.{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(draft, flags, 0o644, dir_fd=directory), "wb") as file:
        try:
            file.write(code)
            file.flush()
            os.rename(draft, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            os.unlink(draft, dir_fd=directory)
            raise


def _folders(module: str) -> list[Path]:
    if named := os.environ.get("NUMBA_CACHE_DIR"):
        return [Path(named)]
    beside = Path(__file__).parent.joinpath(*module.split(".")[2:-1]) / "__pycache__"
    return [beside, Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "commingle"]


@cache
def _name(module: str) -> str:
    made_of = [binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten(), version("numba")]
    hashed = sha256("\n".join(made_of).encode())
    for path in sorted(Path(__file__).parent.rglob("*.py")):  # loops use constants and loops of other modules
        hashed.update(path.read_bytes())
    return f"{module.removeprefix('commingle.shared.')}-{hashed.hexdigest()[:32]}.o"
