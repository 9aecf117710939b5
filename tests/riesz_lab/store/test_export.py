"""Cells of a CSV file are read back as they were, and none is a formula."""

import csv
import io

import pytest

from riesz_lab.store.export import csv_text, defuse


@pytest.mark.parametrize("value", ["a\rb", "a\nb", "a\r\nb", 'a"b', "a,b", "a"])
def test_a_cell_is_read_back_as_it_was(value):
    text = csv_text([{"name": value, "n": 1}], ["name", "n"])
    assert text.startswith("name,n\n")
    assert text.endswith(",1\n")
    assert list(csv.reader(io.StringIO(text, newline=""))) == [["name", "n"], [value, "1"]]


@pytest.mark.parametrize("begins", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_begins_like_a_formula(begins):
    assert defuse(f"{begins}1+1") == f"'{begins}1+1"
