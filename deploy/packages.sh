#!/bin/sh
# What an image consists of: a line for each package, `pypi` or `deb`, name, version.
set -eu
dpkg-query -W -f 'deb ${Package} ${Version}\n'
python - <<'PYTHON'
from importlib.metadata import distributions

for one in distributions():
    print("pypi", one.name.lower().replace("_", "-"), one.version)
PYTHON
