"""Write the archive of a commit: what its own code leaves on the disk (README.md).

Usage, at the root of a checkout with history: python -m tests.earlier.make COMMIT
"""

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import click

_FOLDER = Path(__file__).parent
_WORLD = """
import sys
from pathlib import Path
from tests.world.consortium import consortium_of

pair = consortium_of(Path(sys.argv[1]), "clinic", "insurer")
published = pair.propose(title="published")
for name in [*pair.homes] * 3:
    pair.step(name)
running = pair.propose(title="running")
for name in [*pair.homes, "clinic"]:
    pair.step(name)
assert (pair.state(published), pair.state(running)) == ("published", "collecting")
pair.coordinator.hub.close()
"""


@click.command()
@click.argument("commit")
def main(commit: str) -> None:
    """Write COMMIT.tar.xz beside this file."""
    with tempfile.TemporaryDirectory() as folder:
        code, world = Path(folder) / "code", Path(folder) / "world"
        code.mkdir()
        with subprocess.Popen(["git", "archive", commit], stdout=subprocess.PIPE) as archive:  # noqa: S607 - a tool
            subprocess.run(["tar", "x", "-C", code], stdin=archive.stdout, check=True)  # noqa: S607 - a tool
        paths = {"PYTHONPATH": os.pathsep.join(map(str, (code / ".dev", code)))}
        subprocess.run([sys.executable, "-c", _WORLD, world], check=True, env=os.environ | paths, cwd=code)
        with tarfile.open(_FOLDER / f"{commit}.tar.xz", "w:xz") as archived:
            archived.add(world, arcname=".")


if __name__ == "__main__":
    main()
