"""How a complete trial ended: the record in result.json."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from riesz_lab.errors import BadFileError
from riesz_lab.store.files import Row, read_json

Status = Literal["finished", "diverged", "collapsed"]
STATUSES: tuple[Status, ...] = get_args(Status)
"""finished; diverged, with a loss that is not a number; collapsed, by the rule of the task."""

Which = Literal["last", "best"]


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a complete trial ended.

    Attributes:
        status: finished, diverged or collapsed.
        collapse: the reason, for a collapsed trial.
        step: optimizer steps taken.
        parameters: of all models.
        score: the name of the score.
        higher_is_better: whether a higher score is better.
        last: the history row of the last epoch with a score; None unless finished.
        best: the history row with the best score; None if there is no score.
    """

    status: Status
    collapse: str | None = None
    step: int
    parameters: int
    score: str
    higher_is_better: bool
    last: Row | None
    best: Row | None

    def value(self, which: Which = "last") -> float | None:
        """The last or best score."""
        row = self.last if which == "last" else self.best
        return None if row is None else row[self.score]

    def to_dict(self) -> dict[str, Any]:
        """As it is stored."""
        return {name: value for name, value in asdict(self).items() if (name, value) != ("collapse", None)}


def read_result(path: Path) -> Result | None:
    """The result of a trial; None if the file does not exist, an error that names it if it cannot be read."""
    if not path.exists():
        return None
    stored = read_json(path)
    if not _is_result(stored):
        raise BadFileError(f"{path} is not the result of a trial")
    return Result(
        status=stored["status"],
        collapse=stored.get("collapse"),
        step=stored.get("step", 0),
        parameters=stored.get("parameters", 0),
        score=stored["score"],
        # Older results do not have it. FID was the only score then for which lower is better.
        higher_is_better=bool(stored.get("higher_is_better", not stored["score"].startswith("fid"))),
        last=stored["last"],
        best=stored["best"],
    )


def _is_result(stored: object) -> bool:
    return (
        isinstance(stored, dict)
        and stored.get("status") in STATUSES
        and isinstance(stored.get("score"), str)
        and all(
            which in stored
            and (stored[which] is None or (isinstance(stored[which], dict) and stored["score"] in stored[which]))
            for which in ("last", "best")
        )
    )
