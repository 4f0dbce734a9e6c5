"""`make dist` and `make images`, signed, and what somebody checks who downloaded the files."""

import json
import re
import subprocess
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "installing.md").read_text()
DOCUMENTED = re.search(r"sha256sum --check --strict SHA256SUMS && (.*)$", PAGE, re.MULTILINE)


def publish(target: str, folder: str, scratch: Path, *variables: str) -> Path:
    """The folder that is made; its signature, checksums and provenance were seen to hold."""
    made, key = scratch / target, scratch / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)  # noqa: S607 - whichever
    made_of = ["-o", ".venv/.ready", target, f"{folder}={made}", f"KEY={key}", *variables]
    subprocess.run(["make", *made_of], cwd=ROOT, check=True)  # noqa: S607 - whichever
    (scratch / "release.keys").write_text(f"commingle {key.with_suffix('.pub').read_text()}")
    sums = made / "SHA256SUMS"
    listed = sums.read_text()
    assert checked(made)
    sums.write_text(listed.replace(listed[0], "f" if listed[0] != "f" else "0", 1))
    assert not checked(made)
    sums.write_text(listed)
    signed = {line.split()[1]: line.split()[0] for line in listed.splitlines()}
    assert signed.keys() == {file.name for file in made.iterdir()} - {"SHA256SUMS", "SHA256SUMS.sig"}
    assert signed == {name: sha256((made / name).read_bytes()).hexdigest() for name in signed}
    statement = json.loads((made / "provenance.json").read_text())
    subjects = {each["name"]: each["digest"]["sha256"] for each in statement["subject"]}
    assert subjects == {name: digest for name, digest in signed.items() if name != "provenance.json"}
    source, lock, *_ = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True).stdout  # noqa: S607
    assert source["digest"]["gitCommit"].removesuffix("-dirty") == head.strip()
    assert lock["digest"]["sha256"] == sha256((ROOT / "uv.lock").read_bytes()).hexdigest()
    return made


def checked(made: Path) -> bool:
    """Whether the documented command accepts the signature of the checksums."""
    assert DOCUMENTED is not None
    keys = DOCUMENTED[1].replace("release.keys", str(made.parent / "release.keys"))
    return subprocess.run(["/bin/sh", "-c", keys], cwd=made, check=False).returncode == 0
