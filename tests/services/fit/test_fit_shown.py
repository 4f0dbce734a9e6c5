import sys
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.collections import PathCollection
from matplotlib.text import Annotation

from commingle.services.analysis import lasso_path, pca, ridge_path
from commingle.services.fit import Fit, PreparedMoments, fit_prepared
from commingle.services.results import ResultColumn, ResultTable
from commingle.shared.errors import MissingExtraError
from tests.shared.estimation.tables import TERMS, make_table, noiseless

TABLE = make_table(300)
FIT = fit_prepared(PreparedMoments.of(noiseless(TABLE), TABLE.schema), "pressure")
PREDICTING = fit_prepared(PreparedMoments.of(noiseless(TABLE), TABLE.schema), "pressure", estimator="shrunken")


class Text(HTMLParser):
    """Collects cells, and refuses tags that are not closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.tags: list[str] = []
        self.seen: set[str] = set()
        self.feed(html)
        assert self.tags == []

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002 - the base class's signature
        self.tags.append(tag)
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.tags.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.tags[-1] in {"td", "th"}:
            self.cells.append(data)


@pytest.fixture
def _drawing() -> Iterator[None]:
    with mpl.rc_context({"backend": "agg"}):
        yield
        plt.close("all")


def test_html_holds_every_term_and_its_numbers() -> None:
    cells = Text(FIT._repr_html_()).cells
    assert set(TERMS) <= set(cells)
    assert f"{FIT.coefficients[1]:.4g}" in cells
    assert f"{FIT.coefficients[4]:.4g}".replace("-", "\u2212") in cells


def test_html_escapes_what_others_wrote() -> None:
    hostile = "<script>alert(1)</script>"
    html = replace(FIT, target=hostile, terms=(hostile,) * 6, warnings=(hostile,))._repr_html_()
    assert "script" not in Text(html).seen
    assert "&lt;script&gt;" in html


def test_html_shows_no_nan_where_there_are_no_errors() -> None:
    html = PREDICTING._repr_html_()
    assert "nan" not in html
    assert PREDICTING.warnings[0] in html


def test_frame_holds_the_arrays_of_the_fit() -> None:
    frame = FIT.to_frame()
    assert tuple(frame.index) == TERMS
    np.testing.assert_array_equal(frame["standard error"], FIT.standard_errors)
    np.testing.assert_array_equal(frame[["95 % low", "95 % high"]], FIT.intervals)


def test_frame_keeps_columns_of_the_same_name() -> None:
    columns = (ResultColumn("variance", np.array([1.0, 2.0])), ResultColumn("variance", np.array([3.0, 4.0])))
    frame = ResultTable(title="", heading="component", labels=("1", "2"), columns=columns).to_frame()
    np.testing.assert_array_equal(frame["variance"], [[1, 3], [2, 4]])


def test_frame_without_pandas_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError) as caught:
        FIT.to_frame()
    assert "commingle[notebook]" in caught.value.remedy


@pytest.mark.usefixtures("_drawing")
def test_plot_scales_every_term_by_its_public_range() -> None:
    ax = FIT.plot()
    assert [label.get_text() for label in ax.get_yticklabels()] == list(TERMS[1:])
    (points,) = [c for c in ax.collections if isinstance(c, PathCollection)]
    expected = FIT.coefficients[1:] * [80.0, 5.0, 1.0, 1.0, 1.0]
    np.testing.assert_allclose(np.asarray(points.get_offsets())[:, 0], expected)


@pytest.mark.usefixtures("_drawing")
@pytest.mark.parametrize("fitted", [FIT, PREDICTING], ids=["with intervals", "without"])
def test_plot_uses_the_axes_it_is_given(fitted: Fit) -> None:
    figure, ax = plt.subplots()
    assert fitted.plot(ax) is ax
    assert ("no intervals" in ax.get_xlabel()) == (fitted is PREDICTING)
    figure.savefig("/dev/null", format="png")


@pytest.mark.usefixtures("_drawing")
def test_plot_of_a_constant_is_empty() -> None:
    constant = fit_prepared(PreparedMoments.of(noiseless(TABLE), TABLE.schema), "pressure", estimator="constant")
    assert constant.plot().get_yticklabels() == []


@pytest.mark.usefixtures("_drawing")
def test_path_is_drawn_over_public_ranges_with_its_best_penalty() -> None:
    exact = PreparedMoments.of(noiseless(TABLE), TABLE.schema)
    path = lasso_path(exact, "pressure")
    ax = path.plot()
    lines = {line.get_label(): np.asarray(line.get_ydata()) for line in ax.get_lines()}
    assert set(lines) == {*TERMS[1:], "best penalty"}
    np.testing.assert_allclose(lines[TERMS[1]], 80.0 * path.coefficients[:, 1])
    assert "noise alone stays at 0" in ax.get_xlabel()
    figure, own = plt.subplots()
    assert ridge_path(exact, "pressure", TERMS[1]).plot(own) is own
    figure.savefig("/dev/null", format="png")


@pytest.mark.usefixtures("_drawing")
def test_components_are_drawn_as_correlations_of_the_columns_with_them() -> None:
    found = pca(PreparedMoments.of(noiseless(TABLE), TABLE.schema))
    ax = found.plot()
    arrows = [text.xy for text in ax.texts if isinstance(text, Annotation)]
    np.testing.assert_allclose(arrows, (found.loadings[:2] * np.sqrt(found.variances[:2])[:, None]).T)
    assert [text.get_text().strip() for text in ax.texts if not isinstance(text, Annotation)] == list(found.labels)
    assert ax.get_xlabel().startswith(f"component 1: {found.shares[0]:.0%} of the variance")
    assert pca(PreparedMoments.of(noiseless(TABLE), TABLE.schema), TERMS[1]).plot().get_ylabel() == ""
