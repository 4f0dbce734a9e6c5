"""From the files of a source to a table: the column `reader` of tables.csv names a function of this module."""

import csv
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from gzip import decompress
from io import BytesIO
from typing import Any
from zipfile import ZipFile, is_zipfile

import numpy as np
from numpy.typing import NDArray
from scipy.io import loadmat

from benchmarks.tables import made_of

Columns = dict[str, NDArray[Any]]
Line = Mapping[str, str]


def features(line: Line, names: Iterable[str]) -> list[str]:
    """The file's columns that are features: not the target, the column it is made of, or columns that stand apart."""
    not_features = {line["target"], made_of(line["transform"])[1], *line["apart"].split()}
    return [name for name in names if name not in not_features]


def converted(line: Line, files: Sequence[bytes]) -> Columns:
    """Columns of a table in the order of its file. Raises ValueError, KeyError or BadZipFile for other sources."""
    columns = READERS[line["reader"]](line, [_unpacked(file) for file in files])
    function, of = made_of(line["transform"])
    if function:
        columns[line["target"]] = {"log": np.log, "log1p": np.log1p}[function](columns[of])
    return columns


def needed(line: Line) -> list[tuple[str, str]]:
    """Addresses and SHA-256 of the files that its reader takes: the benchmark copy if the table is made of it."""
    return copied(line)[:1] if line["reader"] in {"copy", "challenger"} else _sources(line, copied=False)


def copied(line: Line) -> list[tuple[str, str]]:
    """Addresses and SHA-256 of the benchmark copy and of its folds, in this order."""
    return _sources(line, copied=True)


def _sources(line: Line, *, copied: bool) -> list[tuple[str, str]]:
    sources = zip(line["sources"].split(), line["source_sha256"].split(), strict=True)
    return [each for each in sources if copied == each[0].endswith(("/data.csv.gz", "/test_mask.csv.gz"))]


def _unpacked(file: bytes) -> bytes:
    if is_zipfile(BytesIO(file)):
        with ZipFile(BytesIO(file)) as archive:
            [largest] = sorted(archive.infolist(), key=lambda each: each.file_size)[-1:]
            return archive.read(largest)
    return decompress(file) if file.startswith(b"\x1f\x8b") else file


def _numbers(line: Line, files: Sequence[bytes]) -> Columns:
    """Numbers parted by commas or white space, however lines break; lines with words or empty cells are left out."""
    names = line["columns"].split()
    rows = (row for file in files for row in file.decode().splitlines())
    numbers = " ".join(row for row in rows if not re.search(r'[A-DF-Za-df-z"]|,,', row))
    values = np.array(numbers.replace(",", " ").split(), np.float64).reshape(-1, len(names))
    return dict(zip(names, values.T, strict=True))


def _machine(line: Line, files: Sequence[bytes]) -> Columns:
    """Vendor 29 and its cycle time of 480 are one number in two rows."""
    return _numbers(line, [file.replace(b"\n29480,", b"\n29,480,") for file in files])


def _matrix(_line: Line, files: Sequence[bytes]) -> Columns:
    reader: Any = loadmat
    return _anonymous(reader(BytesIO(files[0]))["data"])


def _copy(_line: Line, files: Sequence[bytes]) -> Columns:
    """Centred, at five significant digits."""
    return _anonymous(table_of(files[0]).astype(np.float32))


def table_of(file: bytes) -> NDArray[np.float64]:
    """A file of the benchmark copy, (n, p), packed or not."""
    return np.loadtxt(BytesIO(_unpacked(file)), delimiter=",", ndmin=2)


def _anonymous(values: NDArray[Any]) -> Columns:
    return dict(zip([*(f"x{i + 1}" for i in range(values.shape[1] - 1)), "y"], values.T, strict=True))


def _challenger(line: Line, files: Sequence[bytes]) -> Columns:
    """The centred copy, moved so that each column has its least value, in the order of the launches."""
    values = table_of(files[0])
    whole = np.rint(values - values.min(axis=0) + [6, 53, 50, 1, 0])
    return dict(zip(line["columns"].split(), whole[whole[:, 3].argsort()].T, strict=True))


def _csv(line: Line, files: Sequence[bytes]) -> Columns:
    """Comma or semicolon; the first line has the names unless `columns` does, where "_" is left out."""
    text = files[0].decode("utf-8-sig").splitlines()
    rows = csv.reader(text, delimiter=";" if ";" in text[0] else ",")
    names = line["columns"].split() or [re.sub(r"[^\w-]+", "_", name).strip("_") for name in next(rows)]
    cells = zip(*filter(None, rows), strict=True)
    return {name: _typed(column) for name, column in zip(names, cells, strict=True) if name != "_"}


def _typed(cells: Sequence[str]) -> NDArray[Any]:
    """Whole numbers, numbers with NaN where missing, or text with None."""
    cells = [cell.strip() for cell in cells]
    if all(re.fullmatch(r"-?\d+", cell) for cell in cells):
        return np.array(cells, np.int64)
    try:
        return np.array([cell if cell not in _MISSING else "nan" for cell in cells], np.float64)
    except ValueError:
        return np.array([cell if cell not in _MISSING else None for cell in cells], object)


_MISSING = frozenset({"", "?", "NA"})


def _marks(values: NDArray[Any], levels: Mapping[str, Collection[Any]]) -> Columns:
    return {name: np.isin(values, [*level]).astype(np.int64) for name, level in levels.items()}


def _kept(columns: Columns, rows: NDArray[np.bool_]) -> Columns:
    return {name: values[rows] for name, values in columns.items()}


def _runs(line: Line, files: Sequence[bytes]) -> Columns:
    """Four times in hundredths of a millisecond; their mean is exact at four places."""
    columns = _csv(line, files)
    return columns | {"run_mean_ms": np.mean([columns[f"Run{i}_ms"] for i in (1, 2, 3, 4)], axis=0).round(4)}


def _insurance(line: Line, files: Sequence[bytes]) -> Columns:
    raw = _csv(line, files)
    regions = {f"region_{name}": {name} for name in ("northwest", "southeast", "southwest")}
    return {
        **{name: raw[name] for name in ("age", "bmi", "children")},
        **_marks(raw["sex"], {"sex_male": {"male"}}),
        **_marks(raw["smoker"], {"smoker_yes": {"yes"}}),
        **_marks(raw["region"], regions),
        "charges": raw["charges"],
    }


_WAVES = (2003, 2011, 2015)
_UNKNOWN = {"DMDEDUC2": {7, 9}, "DMDMARTL": {77, 99}, "SMQ020": {7, 9}}


def _nhanes(line: Line, files: Sequence[bytes]) -> Columns:
    """One survey wave a file; a question that a wave did not ask is missing there."""
    waves = [_csv({"columns": ""}, [file]) for file in files]
    rows = [len(wave["SEQN"]) for wave in waves]
    return {
        name: np.repeat(_WAVES, rows)
        if name == "wave_start"
        else np.concatenate([wave.get(name, np.full(n, np.nan)) for wave, n in zip(waves, rows, strict=True)])
        for name in line["columns"].split()
    }


def _blood_pressure(line: Line, files: Sequence[bytes]) -> Columns:
    """Complete rows; refused and unknown are missing."""
    raw = _nhanes(line, files)
    for name, codes in _UNKNOWN.items():
        raw[name] = np.where(np.isin(raw[name], [*codes]), np.nan, raw[name])
    raw = _kept(raw, ~np.any([np.isnan(values) for values in raw.values()], axis=0))
    measures = ["BMXWT", "BMXHT", "BMXBMI", "BMXLEG", "BMXARML", "BMXARMC", "BMXWAIST"]
    named = ["weight_kg", "height_cm", "bmi", "leg_length_cm", "arm_length_cm", "arm_circumference_cm", "waist_cm"]
    return {
        "SEQN": raw["SEQN"],
        **_marks(raw["wave_start"], {"wave_2011": {2011}, "wave_2015": {2015}}),
        "age": raw["RIDAGEYR"],
        **_marks(raw["RIAGENDR"], {"male": {1}}),
        **_marks(raw["RIDRETH1"], {f"race_eth_{level}": {level} for level in (1, 2, 4, 5)}),
        "education": raw["DMDEDUC2"],
        **_marks(raw["DMDMARTL"], {"married_or_partner": {1, 6}}),
        "household_size": raw["DMDHHSIZ"],
        "income_poverty_ratio": raw["INDFMPIR"],
        **{name: raw[measure] for name, measure in zip(named, measures, strict=True)},
        **_marks(raw["SMQ020"], {"smoked_100": {1}}),
        "systolic_bp": raw["BPXSY1"],
    }


def _diabetes(line: Line, files: Sequence[bytes]) -> Columns:
    """Without the encounters of unknown gender."""
    raw = _csv(line, files)
    raw = _kept(raw, np.isin(raw["gender"], ["Male", "Female"]))
    races = {f"race_{race.lower()}": {race} for race in ("AfricanAmerican", "Asian", "Hispanic", "Other")}
    high, over = (">200", ">300"), (">7", ">8")
    as_they_are = ("number_outpatient", "number_emergency", "number_inpatient", "num_medications")
    return {
        **{name: raw[name] for name in ("encounter_id", "patient_nbr")},
        "age_mid": np.array([int(age[1:].split("-")[0]) + 5 for age in raw["age"]]),
        **_marks(raw["gender"], {"male": {"Male"}}),
        **_marks(raw["race"], races | {"race_missing": {None}}),
        **_marks(raw["admission_type_id"], {"admit_urgent": {2}, "admit_elective": {3}, "admit_other": range(4, 9)}),
        **_marks(raw["admission_source_id"], {"from_emergency_room": {7}}),
        **_marks(raw["discharge_disposition_id"], {"discharged_home": {1}}),
        "num_lab_procedures": raw["num_lab_procedures"],
        **_marks(raw["max_glu_serum"], {"glucose_measured": ("Norm", *high), "glucose_over_200": high}),
        **_marks(raw["A1Cresult"], {"a1c_measured": ("Norm", *over), "a1c_over_7": over, "a1c_over_8": over[1:]}),
        **{name: raw[name] for name in ("num_procedures", "number_diagnoses", *as_they_are)},
        **_marks(raw["insulin"], {f"insulin_{level.lower()}": {level} for level in ("Down", "Steady", "Up")}),
        **_marks(raw["metformin"], {"metformin": {"Down", "Steady", "Up"}}),
        **_marks(raw["change"], {"medication_changed": {"Ch"}}),
        **_marks(raw["diabetesMed"], {"diabetes_medication": {"Yes"}}),
        "time_in_hospital": raw["time_in_hospital"],
    }


_NORMAL = {"alb": 3.5, "pafi": 333.3, "bili": 1.01, "crea": 1.01, "bun": 6.51, "wblc": 9.0, "urine": 2502.0}


def _patients(line: Line, files: Sequence[bytes]) -> Columns:
    _, *others = (columns := _csv(line, files))
    return {"row_id": columns[next(iter(columns))], **{name: columns[name] for name in others}}


def _support(line: Line, files: Sequence[bytes]) -> Columns:
    """Missing laboratory values are the usual normal ones; other incomplete rows, and those without charges, go."""
    raw = _patients(line, files)
    names = (
        *("num_co", "diabetes", "dementia", "hday", "scoma", "avtisst", "meanbp", "hrt", "resp", "temp", "adlsc"),
        *("wblc", "pafi", "alb", "bili", "crea", "sod", "bun", "urine"),
    )
    numbers = {name: raw[name].astype(np.float64) for name in ("age", *names, "charges")}
    for name, normal in _NORMAL.items():
        numbers[name] = np.where(np.isnan(numbers[name]), normal, numbers[name])
    complete = ~np.any([np.isnan(values) for values in numbers.values()], axis=0)
    rows = complete & (numbers["charges"] > 0) & (raw["race"] != None)  # noqa: E711 - of each cell
    raw, numbers = _kept(raw, rows), _kept(numbers, rows)
    diseases = ("CHF", "COPD", "Cirrhosis", "Colon Cancer", "Coma", "Lung Cancer", "MOSF w/Malig")
    return {
        "row_id": raw["row_id"],
        "age": numbers["age"],
        **_marks(raw["sex"], {"male": {"male"}}),
        **{name: numbers[name] for name in names},
        **_marks(raw["race"], {f"race_{race}": {race} for race in ("asian", "black", "hispanic", "other")}),
        **_marks(raw["ca"], {f"cancer_{level}": {level} for level in ("yes", "metastatic")}),
        **_marks(raw["dzgroup"], {"dz_" + re.sub(r"\W", "_", name).lower(): {name} for name in diseases}),
        "charges": numbers["charges"],
    }


READERS: Mapping[str, Callable[[Line, Sequence[bytes]], Columns]] = {
    "numbers": _numbers,
    "machine": _machine,
    "matrix": _matrix,
    "copy": _copy,
    "challenger": _challenger,
    "csv": _csv,
    "runs": _runs,
    "insurance": _insurance,
    "nhanes": _nhanes,
    "blood_pressure": _blood_pressure,
    "diabetes": _diabetes,
    "patients": _patients,
    "support": _support,
}
