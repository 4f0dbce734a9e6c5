"""A table with every kind of attribute, and releases of it made without any service."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import statsmodels.api as sm
from numpy.typing import NDArray

from commingle.services.fit import Fit
from commingle.shared.documents.manifest import SecondMoments
from commingle.shared.documents.schema import (
    Attribute,
    BinaryAttribute,
    CategoricalAttribute,
    NumericAttribute,
    encoded_columns,
)
from commingle.shared.documents.spec import INTERCEPT

Array = NDArray[np.float64]

SCHEMA: tuple[Attribute, ...] = (
    NumericAttribute(name="age", lower=18.0, upper=98.0),
    NumericAttribute(name="dose", lower=-2.0, upper=3.0),
    BinaryAttribute(name="sex", levels=("female", "male")),
    CategoricalAttribute(name="site", levels=("north", "east", "south")),
    NumericAttribute(name="pressure", lower=60.0, upper=260.0),
)
TERMS = ("(intercept)", "age", "dose", "sex[male]", "site[east]", "site[south]")


@dataclass(frozen=True)
class Table:
    """Rows in original units by attribute name."""

    rows: Mapping[str, NDArray[Any]]
    schema: tuple[Attribute, ...] = SCHEMA

    @property
    def original(self) -> Array:
        """(n, p) the columns in original units, the intercept first."""
        columns = [np.ones(len(self.rows["age"]))]
        for attribute in self.schema:
            values = self.rows[attribute.name]
            if isinstance(attribute, NumericAttribute):
                columns.append(values)
            else:
                columns += [(values == level).astype(float) for level in attribute.levels[1:]]
        return np.column_stack(columns)

    @property
    def encoded(self) -> Array:
        """(n, p) the columns as they are encoded, the intercept first."""
        columns = encoded_columns(self.schema)
        offset = np.array([0.0, *(c.offset for c in columns)])
        scale = np.array([1.0, *(c.scale for c in columns)])
        return np.asarray((self.original - offset) / scale)

    def with_bounds(self, name: str, lower: float, upper: float) -> "Table":
        """The same rows under another schema."""
        wider = NumericAttribute(name=name, lower=lower, upper=upper)
        return replace(self, schema=tuple(wider if a.name == name else a for a in self.schema))


def oracle(table: Table, *, intercept: bool = True) -> Any:
    """Statsmodels' fit of the last column in original units."""
    design = table.original
    return sm.OLS(design[:, -1], design[:, 0 if intercept else 1 : -1]).fit()


def make_table(n: int, seed: int = 0, error: float = 8.0) -> Table:
    """n rows with pressure = 90 + 0.5 age + 4 dose + 6 male - 5 east + 9 south + N(0, error^2)."""
    rng = np.random.default_rng(seed)
    age, dose = rng.uniform(18, 98, n), rng.uniform(-2, 3, n)
    sex = rng.choice(["female", "male"], n)
    site = rng.choice(["north", "east", "south"], n)
    pressure = 90 + 0.5 * age + 4 * dose + 6 * (sex == "male") - 5 * (site == "east") + 9 * (site == "south")
    return Table({"age": age, "dose": dose, "sex": sex, "site": site, "pressure": pressure + rng.normal(0, error, n)})


def columns_of(letters: str) -> tuple[NumericAttribute, ...]:
    """Numbers on [-1, 1], so that encoded and original units are the same."""
    return tuple(NumericAttribute(name=letter, lower=-1.0, upper=1.0) for letter in letters)


def moments_of(
    gram: Array,
    schema: tuple[Attribute, ...],
    *,
    noise: float | Array,
    rows: int,
    n: int,
    mechanism: Literal["rmgm", "dgm"] = "rmgm",
) -> SecondMoments:
    """The wire document of a Gram matrix with these noise variances, or equal ones."""
    columns = (INTERCEPT, *(c.name for c in encoded_columns(schema)))
    return SecondMoments(
        release="0" * 64,
        mechanism=mechanism,
        columns=columns,
        gram=tuple(map(tuple, gram.tolist())),
        noise_variance=(0.0, *np.broadcast_to(noise, len(columns) - 1).tolist()),
        rows=rows,
        n=n,
    )


def noiseless(table: Table, mechanism: Literal["rmgm", "dgm"] = "rmgm") -> SecondMoments:
    """What the identity projection releases without noise."""
    A = table.encoded
    return moments_of(A.T @ A, table.schema, noise=0.0, rows=len(A), n=len(A), mechanism=mechanism)


def rmgm(table: Table, k: int, noise: float, seed: int = 1) -> SecondMoments:
    """P = B A + N with B of entries +-1/sqrt(k), in floating point."""
    rng, A = np.random.default_rng(seed), table.encoded
    P = np.zeros((k, A.shape[1]))
    for rows in np.array_split(A, max(1, len(A) // 2000)):
        P += rng.choice([-1.0, 1.0], (k, len(rows))) @ rows / np.sqrt(k)
    P[:, 1:] += rng.normal(0, np.sqrt(noise), (k, A.shape[1] - 1))
    return moments_of(P.T @ P, table.schema, noise=noise, rows=k, n=len(A))


def require_said(result: Fit, interval_for: str, said: Sequence[str]) -> None:
    """What intervals are for, standard errors where they are for something, and these warnings; none where none is."""
    assert result.interval_for == interval_for
    assert bool(np.isnan(result.standard_errors).all()) is (interval_for == "none")
    for sentence in said:
        assert any(sentence in warning for warning in result.warnings)
    assert said or result.warnings == ()
