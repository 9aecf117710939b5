"""Stored trials: a directory each, with one list of file names and one reader."""

from riesz_lab.store.result import STATUSES, Result, read_result
from riesz_lab.store.store import MADE_BY, Store, StoredTrial, open_store, read_trial

__all__ = ["MADE_BY", "STATUSES", "Result", "Store", "StoredTrial", "open_store", "read_result", "read_trial"]
