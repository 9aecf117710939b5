"""The compiled backend may be missing only where it could not be built: its tests are skipped without it."""

from __future__ import annotations

import shutil

import pytest

from riesz.backends import native


@pytest.mark.skipif(not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="no C++ compiler to build it with")
def test_the_compiled_library_is_here_wherever_there_is_a_compiler():
    assert not isinstance(native.load(), str), native.load()
