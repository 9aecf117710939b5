"""See `utils.terminal`."""

from riesz_lab.utils.terminal import print_table, table

__all__ = ["print_table", "table"]
