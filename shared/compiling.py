"""Loops compiled by numba: `python -m commingle.shared.compiling MODULE` prints the machine code of a module's.

Nothing else imports this module, or one with loops: numba and what its compiler leaves behind hold 80 MB that calling
the loops does not need. `machine_code.py` runs this and calls what it made.
"""

import json
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar, cast

from llvmlite import binding
from numba import njit
from numba.core.dispatcher import Dispatcher

from commingle.shared.machine_code import target

Function = TypeVar("Function", bound=Callable[..., Any])
_ONLY_THE_LOOP = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False, "error_model": "numpy"}


def compiled(signature: str) -> Callable[[Function], Function]:
    """A loop over C-contiguous arrays and integers, which allocates nothing and raises nothing."""
    found: Callable[[Function], Function] = cast(Any, njit)(signature, **_ONLY_THE_LOOP)
    return found


def object_file(module: str) -> bytes:
    """A line of JSON, `{loop: [symbol, [[type, dimensions], ...]]}`, and the object file that has the symbols."""
    code, loops = binding.parse_assembly(""), {}
    for name, loop in vars(import_module(module)).items():
        if isinstance(loop, Dispatcher):
            (types,) = loop.signatures
            code.link_in(binding.parse_assembly(loop.inspect_llvm(types)))
            dimensions = [getattr(each, "ndim", 0) for each in types]
            kinds = [str(getattr(each, "dtype", each)) for each in types]
            result: Any = loop.overloads[types]
            loops[name] = [result.fndesc.llvm_func_name, list(zip(kinds, dimensions, strict=True))]
    if lacking := [each.name for each in code.functions if each.is_declaration and not each.name.startswith("llvm.")]:
        raise SystemExit(f"{module} calls what only numba has: {lacking}")
    return json.dumps(loops).encode() + b"\n" + bytes(target().emit_object(code))


if __name__ == "__main__":
    sys.stdout.buffer.write(object_file(sys.argv[1]))
