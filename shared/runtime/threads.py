"""How many threads linear algebra has in each process that computes: one, or as many as `COMMINGLE_THREADS` says.

Left to themselves OpenBLAS and its like start one for each processor in each process, and these wait for each other by
spinning: with more processors, or more processes than those, a release costs many times its work.
"""

from collections.abc import Mapping

from commingle.shared.runtime.errors import SettingsError

SETTING = "COMMINGLE_THREADS"
_READ_WHILE_LOADING = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def threads(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that libraries of linear algebra read while they load. One that is set already stays as it is."""
    count = environment.get(SETTING, "1")
    if not (count.isascii() and count.isdecimal() and int(count) > 0):
        raise SettingsError(f"{SETTING} is {count!r}", remedy="Give a whole number of threads from 1, or unset it.")
    return {name: environment.get(name, count) for name in _READ_WHILE_LOADING}
