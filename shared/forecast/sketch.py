"""How many rows an rmgm release should have."""

from dataclasses import replace

import numpy as np

from commingle.shared.documents.study import Study
from commingle.shared.planning.design import Design, design_of, noise_variance
from commingle.shared.planning.errors import PlanningError
from commingle.shared.planning.task import Assumptions, Task, task_of

_MOST = 1_000_000  # what a spec allows
_ROWS_PER_COLUMN = 3
_STEPS = 400


def with_sketch(study: Study) -> Study:
    """The study with its k: as written, or the best one under the default assumptions.

    Raises:
        PrivacyError: epsilon, delta or a row norm outside its domain.
    """
    if study.mechanism != "rmgm" or study.k is not None:
        return study
    design = design_of(study)
    try:
        task = task_of(design, Assumptions())
    except PlanningError:  # nothing to fit: what the paper takes
        return study.model_copy(update={"k": sketch_bounds(design)[1]})
    return study.model_copy(update={"k": best_k(design, task)})


def settled(design: Design, task: Task) -> Design:
    """The design with its k, chosen anew where the mechanism has one."""
    return replace(design, k=best_k(design, task)) if design.mechanism == "rmgm" else design


def sketch_bounds(design: Design) -> tuple[int, int]:
    """Least and largest k to consider: three rows per published column, and n^(2/3) (Wu et al. 2022, theorem 2)."""
    least = min(design.n, _ROWS_PER_COLUMN * (1 + len(design.columns)))
    return least, min(design.n, _MOST, max(least, round(design.n ** (2 / 3))))


def best_k(design: Design, task: Task) -> int:
    """The k with the least summed variance of the standardised slopes (estimation.md, planning).

    Cov(b) = (k / (k - q - 2)) (A / k + B + C k): few rows lose information (A), many rows drown in noise (C). With
    W = xx^-1, e = W V b and nu2 = v_y + b^T V b:
    A = residual W,  B = (nu2 W + residual W V W) / n,  C = (nu2 W V W + e e^T) / n^2.
    """
    least, most = sketch_bounds(design)
    v = noise_variance(design)
    noise_x, weight = v[list(task.x)], np.diag(task.xx)
    W = task.inverse
    nu2 = float(v[task.y] + noise_x @ task.b**2)
    plain, noisy = float(weight @ np.diag(W)), float(weight @ W**2 @ noise_x)  # the second: diag(W V W)
    attenuated = float(weight @ (W @ (noise_x * task.b)) ** 2)
    k = np.unique(np.geomspace(least, most, _STEPS).astype(np.int64)).astype(np.float64)
    per_row = task.residual * plain / k
    fixed = (nu2 * plain + task.residual * noisy) / design.n
    variance = per_row + fixed + (nu2 * noisy + attenuated) / design.n**2 * k
    lost = np.maximum(k - len(task.b) - 2, np.finfo(float).eps) / k
    return int(k[np.argmin(variance / lost)])
