"""The question of the demo: owners' tables fit what they register, and the study asks what they hold."""

from commingle.services.simulation import story
from commingle.shared.documents.schema import as_registered
from commingle.shared.documents.study import Study

PEOPLE = story.everybody(seed=3, subjects=500)


def test_study_asks_what_owners_register_and_their_rows_lie_within_it() -> None:
    study = Study.model_validate(
        {"mechanism": "moments", "epsilon": 1, "delta": 1e-5, "n": 450, "parties": story.parties(), **story.STUDY},
        strict=False,
    )
    for party in study.parties:
        asked = {a.name: a for one in party.attributes for a in as_registered(one)}
        held = story.tables(PEOPLE, seed=4)[party.name]
        assert [*held] == ["subject", *asked] == ["subject", *(a.name for a in story.SCHEMAS[party.name])]
        assert len(held["subject"]) == 450
        for name, attribute in asked.items():
            if attribute.kind == "numeric":
                assert attribute.lower <= held[name].min() <= held[name].max() <= attribute.upper
            else:
                assert set(held[name]) == set(attribute.levels)
