"""What is published beside the artefacts of a release: of what an image consists, and from what everything was built.

    materials.py sbom <WHAT_THE_IMAGE_SAYS                     one line a package, `pypi` or `deb`, name, version
    materials.py TARGET DIRECTORY [NAME=DIGEST …]              what `make TARGET` made; each NAME is what else went in

The first prints CycloneDX 1.5, the second an in-toto statement of SLSA provenance 1.0 about all files of the directory.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from hashlib import file_digest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_URL = {"pypi": "pkg:pypi/{}@{}", "deb": "pkg:deb/debian/{}@{}"}


def bill(lines: Iterable[str]) -> dict[str, Any]:
    """A bill of materials, CycloneDX 1.5."""
    packages = sorted({tuple(line.split()) for line in lines if line.strip()})
    found = [(name, version, _URL[kind].format(name, version.replace("+", "%2B"))) for kind, name, version in packages]
    components = [{"type": "library", "name": n, "version": v, "purl": url, "bom-ref": url} for n, v, url in found]
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": components}


def provenance(target: str, directory: Path, others: dict[str, str], *, commit: str, ended: datetime) -> dict[str, Any]:
    """An in-toto statement: `make` made these files of a commit, the locked libraries and `others`, by SHA-256."""
    files = sorted(file for file in directory.iterdir() if file.is_file())
    materials = {"uv.lock": sha256(ROOT / "uv.lock")} | others
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": file.name, "digest": {"sha256": sha256(file)}} for file in files],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:commingle:make",
                "externalParameters": {"command": f"make {target}"},
                "resolvedDependencies": [
                    {"name": "source", "digest": {"gitCommit": commit}},
                    *({"name": name, "digest": {"sha256": digest}} for name, digest in materials.items()),
                ],
            },
            "runDetails": {"builder": {"id": "urn:commingle:makefile"}, "metadata": {"finishedOn": ended.isoformat()}},
        },
    }


def sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return file_digest(opened, "sha256").hexdigest()


def _commit() -> str:
    """The commit of this checkout, marked where something differs from it."""
    described = ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    return subprocess.run(described, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    if sys.argv[1:] == ["sbom"]:
        made = bill(sys.stdin)
    else:
        named = dict(each.rsplit("=", 1) for each in sys.argv[3:])
        if wrong := [name for name, digest in named.items() if not re.fullmatch("[0-9a-f]{64}", digest)]:
            sys.exit(f"no SHA-256 of {', '.join(wrong)}")
        made = provenance(sys.argv[1], Path(sys.argv[2]), named, commit=_commit(), ended=datetime.now(UTC))
    sys.stdout.write(json.dumps(made, indent=1) + "\n")
