"""Flat records as CSV, JSON or Parquet."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from riesz_lab.errors import ConfigError, LabError
from riesz_lab.utils import atomic

SUFFIXES = (".csv", ".json", ".parquet")
VERSION = 1
"""Of the JSON: raised when a name changes its meaning or goes."""


def write(records: list[dict[str, Any]], path: Path) -> None:
    """Write records in the format of the file's suffix; a column per name, blank where a record lacks it."""
    check(path)
    names = list(dict.fromkeys(name for record in records for name in record))
    if path.suffix == ".parquet":
        return atomic.write_bytes(path, _parquet(records, names))
    text = json_text(records) if path.suffix == ".json" else csv_text(records, names)
    atomic.write_bytes(path, text.encode())


def json_text(records: Sequence[Mapping[str, Any]]) -> str:
    """An object with a version and the records. JSON has no infinity and no NaN: they are null."""
    content = msgspec.json.encode({"version": VERSION, "records": records}, enc_hook=str)
    return msgspec.json.format(content, indent=1).decode() + "\n"


def check(path: Path) -> None:
    """Raise if records cannot be written to this file."""
    if path.suffix not in SUFFIXES:
        raise ConfigError(f"output: expected a name that ends in {', '.join(SUFFIXES)}, got {path}")
    if path.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise LabError("Parquet needs pyarrow: pip install 'riesz[parquet]'. CSV needs nothing")
    atomic.check_place(path)


def csv_text(records: Iterable[Mapping[str, Any]], names: Sequence[str]) -> str:
    """The columns of these names, blank where a record lacks one."""
    buffer = _Lines(newline="")
    # A cell is quoted for the characters of the line's end: for a bare carriage return too.
    writer = csv.DictWriter(buffer, names, extrasaction="ignore", lineterminator="\r\n")
    writer.writeheader()
    writer.writerows({name: defuse(value) for name, value in record.items()} for record in records)
    return buffer.getvalue()


class _Lines(io.StringIO):
    """Lines end in a line feed; a writer of CSV writes one at a time."""

    def write(self, line: str) -> int:
        return super().write(line.removesuffix("\r\n") + "\n")


def defuse(value: object) -> object:
    """A cell of a CSV file. A spreadsheet reads text that begins like this as a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def _parquet(records: list[dict[str, Any]], names: list[str]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    columns = {name: _column([record.get(name) for record in records]) for name in names}
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(columns), sink)
    return bytes(sink.getvalue().to_pybytes())


def _column(values: list[Any]) -> Any:
    import pyarrow

    try:
        return pyarrow.array(values)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError):
        # A setting that may be a name or a number, such as the direction.
        return pyarrow.array([None if value is None else str(value) for value in values])
