#!/bin/sh
# Leaves out of the image's environment what libraries bring for others: their tests, what is compiled or checked against
# them, Arrow Flight, and bytecode that nothing here loads. Then loads every module, which writes the bytecode that is
# needed (the image is run by a user who cannot write any), and makes a build fail rather than a start.
set -eu
packages=$(echo "$UV_PROJECT_ENVIRONMENT"/lib/python3.*/site-packages)
python=$UV_PROJECT_ENVIRONMENT/bin/python

find "$packages" -type d \( -name tests -o -name __pycache__ \) -prune -exec rm -r {} +
find "$packages" -type f \( -name '*.pyi' -o -name '*.pyx' -o -name '*.px[di]' -o -name '*.h' -o -name '*.hpp' \) -delete
rm -rf "$packages"/pyarrow/include "$packages"/pyarrow/src "$packages"/pyarrow/*flight*.so*
rm -rf "$packages"/pygments/lexers "$packages"/sqlalchemy/testing
for part in cluster datasets differentiate fftpack io misc odr signal; do rm -rf "$packages/scipy/$part"; done
for library in "$packages"/pyarrow/*.so.*.*.*; do # a wheel holds three copies of what a system holds one of
    [ ! -f "$library" ] || for name in "${library%.*.*}" "${library%.so.*}.so"; do ln -sf "${library##*/}" "$name"; done
done
# symbols, but not of what was made with patchelf, whose work `strip` destroys
find "$packages" -name '*.so*' -type f ! -path '*.libs/*' -exec strip --strip-unneeded {} +

"$python" - <<'PYTHON'
import sys
from ctypes import CDLL
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import commingle
from commingle.shared.errors import MissingExtraError
from commingle.shared.loops import level

for module in walk_packages(commingle.__path__, "commingle."):
    try:
        import_module(module.name)
    except MissingExtraError:
        pass
    except ModuleNotFoundError as missing:  # of an extra that the image has not, or of a test
        if (missing.name or "").startswith("commingle"):
            raise
for needed in (
    "commingle.coordinator.admin_cli",
    "commingle.coordinator.bucket_blobs",
    "commingle.party_agent.cli.serve",
    "commingle.party_agent.regression.service",
    "commingle.services.learner.app",
    "adbc_driver_postgresql.dbapi",
    "psycopg",
    "pyarrow.csv",
    "pyarrow.parquet",
    "scipy.stats.qmc",
):
    import_module(needed)
level()  # built by a compiler
for library in Path(sys.prefix).rglob("*.so*"):
    CDLL(str(library))
PYTHON
