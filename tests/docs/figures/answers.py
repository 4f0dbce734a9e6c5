"""The README's picture: one release's answers beside the truth (python -m tests.docs.figures.answers).

A consortium of real agents publishes the release; the truth is what all the made-up people's rows say. It draws
docs/pictures/answers.svg and writes docs/figures/answers.json. Noise is drawn anew each time.
"""

import json

import matplotlib as mpl

from commingle.services.simulation import story
from commingle.services.simulation.story import Answers
from commingle.services.testing.consortium import Consortium
from tests.docs.figures.data import DOCS

SEED, EPSILON = 1, 1.0


def main() -> None:
    people = story.everybody(seed=SEED)
    with Consortium(
        story.tables(people, seed=SEED + 1), schemas=story.SCHEMAS, links=False, network=False
    ) as consortium:
        asked = consortium.study(epsilon=EPSILON, parties=story.parties(), **story.STUDY)
        release = consortium.release(asked, seconds=1200)
    answers = Answers.of(release, people)
    mpl.rcParams |= {"svg.fonttype": "none", "font.family": "sans-serif", "svg.hashsalt": "answers"}
    answers.draw(DOCS / "pictures/answers.svg", metadata={"Date": None})
    told = {
        each.title: {
            "lines": each.lines,
            "groups": each.groups,
            "release": each.values.tolist(),
            "intervals": each.intervals.tolist(),
            "all_rows": each.truth.tolist(),
        }
        for each in (answers.first, answers.ratios, answers.alive)
    }
    about = {"epsilon": EPSILON, "people": story.SUBJECTS}
    (DOCS / "figures/answers.json").write_text(json.dumps(about | told, indent=1) + "\n")


if __name__ == "__main__":
    main()
