"""Reading small JSON files of settings, strictly."""

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from commingle.shared.documents.model import explain
from commingle.shared.runtime.errors import SettingsError


class Settings(BaseModel):
    """Settings of one process: read once in `cli.py`, never changed, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


Kind = TypeVar("Kind", bound=BaseModel)


def load_settings(kind: type[Kind], path: Path) -> Kind:
    """Settings from a JSON file.

    Raises:
        SettingsError: missing, not JSON, unknown or wrong keys.
    """
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise SettingsError(
            f"cannot read {path} ({error.strerror})", remedy="Run the init command first, or check the path."
        ) from None
    except ValidationError as error:
        raise SettingsError(f"{path}: {explain(error)}", remedy="Correct the file and start again.") from None
