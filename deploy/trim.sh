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
rm -rf "$packages"/pygments/lexers "$packages"/sqlalchemy/testing "$packages"/sklearn/datasets/data "$packages"/sklearn/datasets/images
for library in "$packages"/pyarrow/*.so.*.*.*; do # a wheel holds three copies of what a system holds one of
    [ ! -f "$library" ] || for name in "${library%.*.*}" "${library%.so.*}.so"; do ln -sf "${library##*/}" "$name"; done
done
# symbols, where the library was not made with patchelf, whose work `strip` destroys
find "$packages"/adbc_driver_manager "$packages"/sqlalchemy -name '*.so' -exec strip --strip-unneeded {} +

"$python" - <<'PYTHON'
from importlib import import_module
from pkgutil import walk_packages

import commingle
from commingle.shared.loops import level

for module in walk_packages(commingle.__path__, "commingle."):
    try:
        import_module(module.name)
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
    "sklearn.linear_model",
):
    import_module(needed)
level()  # built by a compiler
PYTHON
