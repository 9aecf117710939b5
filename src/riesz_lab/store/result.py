"""How a complete trial ended: the record in result.json."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from riesz_lab.errors import BadFileError
from riesz_lab.store.files import Row, is_number, read_json

Status = Literal["finished", "diverged", "collapsed"]
STATUSES: tuple[Status, ...] = get_args(Status)
"""finished; diverged, with a loss that is not a number; collapsed, by the rule of the task."""

Which = Literal["last", "best"]


def is_percent(column: str, score: str = "", percent: bool = False) -> bool:
    """Whether a column of a history holds fractions that are printed in percent.

    Args:
        column: its name, which is all that is stored of most columns.
        score: the column that trials are compared by.
        percent: whether that one does, as its task says.
    """
    return percent if column == score else column.endswith(("accuracy", "miou"))


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a complete trial ended."""

    status: Status  # finished, diverged or collapsed
    collapse: str | None = None  # the reason, for a collapsed trial
    step: int = 0  # optimizer steps taken
    parameters: int = 0  # of all models
    score: str  # the name of the score
    higher_is_better: bool  # whether a higher score is better
    percent: bool  # whether the score is a fraction that is printed in percent
    last: Row | None  # the history row of the last epoch with a score; None unless finished
    best: Row | None  # the history row with the best score; None if there is no score

    def value(self, which: Which = "last") -> float | None:
        row = self.last if which == "last" else self.best
        return None if row is None else row[self.score]

    def to_dict(self) -> dict[str, Any]:
        """As it is stored: without what a reader concludes from the rest."""
        implied = {"collapse": None, "percent": is_percent(self.score)}
        return {name: value for name, value in asdict(self).items() if (name, value) not in implied.items()}


def read_result(path: Path) -> Result | None:
    """The result of a trial; None if the file does not exist, an error that names it if it cannot be read."""
    if not path.exists():
        return None
    stored = read_json(path)
    try:
        if isinstance(stored, dict):
            # Older results do not have it. FID was the only score then for which lower is better.
            stored.setdefault("higher_is_better", not str(stored.get("score")).startswith("fid"))
            stored.setdefault("percent", is_percent(str(stored.get("score"))))
        result = msgspec.convert(stored, Result)
    except msgspec.ValidationError:
        result = None
    if result is None or not all(row is None or is_number(row.get(result.score)) for row in (result.last, result.best)):
        raise BadFileError(f"{path} is not the result of a trial")
    return result
