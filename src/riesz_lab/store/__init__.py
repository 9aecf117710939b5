"""Stored trials: a directory each, with one list of file names and one reader."""

from riesz_lab.store.store import STATUSES, Store, StoredTrial, open_store, read_trial

__all__ = ["STATUSES", "Store", "StoredTrial", "open_store", "read_trial"]
