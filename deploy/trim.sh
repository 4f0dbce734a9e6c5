#!/bin/sh
# Leaves out of an image's environment what libraries bring for others: their own tests, headers to compile against, and
# Arrow Flight. Then loads what the role runs, so that a build fails rather than a start.
# Usage: trim.sh MODULE...
set -eu
packages=$(echo "$UV_PROJECT_ENVIRONMENT"/lib/python3.*/site-packages)

for library in numpy pyarrow scipy sklearn; do
    [ ! -d "$packages/$library" ] || find "$packages/$library" -type d -name tests -prune -exec rm -r {} +
done
rm -rf "$packages"/pyarrow/include "$packages"/pyarrow/src "$packages"/pyarrow/*flight*.so*

for module in pyarrow.csv pyarrow.parquet "$@"; do
    "$UV_PROJECT_ENVIRONMENT/bin/python" -c "import $module"
done
"$UV_PROJECT_ENVIRONMENT/bin/python" -c "from commingle.shared.loops import level; level()" # built by a compiler
