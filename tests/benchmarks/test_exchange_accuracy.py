import numpy as np

from benchmarks.exchange_accuracy import drawn, exchanged, noise_ratios
from benchmarks.release_law import proposed
from commingle.shared.documents.schema import NumericAttribute
from commingle.shared.documents.study import Study, StudyParty


def test_exchanged_release_and_drawn_one_are_the_same_but_for_their_noise() -> None:
    random, n = np.random.default_rng(0), 30
    parties = tuple(
        StudyParty(
            name=f"p{i}",
            dataset="d",
            attributes=(NumericAttribute(name=f"x{i}", lower=-1, upper=1),),
            first_stage_share=None,
        )
        for i in range(2)
    )
    spec = proposed(
        Study(study="s", mechanism="moments", subjects="listed", epsilon=1.0, delta=1e-5, n=n, parties=parties)
    )
    rows = {party.name: random.integers(-(2**14), 2**14, (n, 1)) for party in parties}
    A = np.hstack([np.ones((n, 1)), *(own / 2**14 for own in rows.values())])
    for made in (exchanged(spec, rows), drawn(spec, rows, random)):
        assert made.entry_variance is not None
        off = np.abs(made.gram - A.T @ A)
        assert off[0, 0] == 0
        assert (off <= 8 * np.sqrt(made.entry_variance)).all()
        assert off[1:, 1:].all()


def test_noise_of_exchanged_releases_is_counted_by_kind_and_has_the_stated_variance() -> None:
    found = noise_ratios(1, n=8, columns=8)
    counts = {kind: count for kind, (count, _, _) in found.items()}
    assert counts == {
        "linear terms": 24,
        "diagonal": 24,
        "above the diagonal": 3 * 28,
        "cross blocks": 3 * 64,
        "all": 24 * 27 // 2,
    }
    _, ratio, _ = found["all"]
    assert abs(ratio - 1) < 0.48  # six standard deviations of 324 squares: fails by chance once in 10^7
