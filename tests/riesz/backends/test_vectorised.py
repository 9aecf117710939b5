"""The compiler vectorises the loops of csrc/ that say so, and half types are converted in registers."""

from __future__ import annotations

import ast
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "csrc"
COMPILER = os.environ.get("CXX") or next(filter(shutil.which, ("c++", "g++", "clang++")), None)

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")


def build_settings(name):
    """A constant of setup.py, which cannot be imported without building."""
    statements = ast.parse((ROOT / "setup.py").read_text()).body
    (value,) = (s.value for s in statements if isinstance(s, ast.Assign) and s.targets[0].id == name)
    return ast.literal_eval(value)


def compiled(source, *flags, output):
    command = [COMPILER, *build_settings("COMMON"), *flags, str(source), "-o", str(output)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def is_clang():
    return "clang" in subprocess.run([COMPILER, "--version"], capture_output=True, text=True, check=True).stdout


def test_loops_that_are_marked_are_vectorised(tmp_path):
    remarks = ("-Rpass=loop-vectorize",) if is_clang() else ("-fopt-info-vec-optimized",)
    # The same code for every instruction set; this one is compiled everywhere.
    report = compiled(SOURCES / "portable.cpp", *remarks, "-c", output=tmp_path / "portable.o")
    vectorised = {
        (Path(file).name, int(line)) for file, line in re.findall(r"^([^\s:]+):(\d+):.*vectorized", report, re.M)
    }
    marked = {
        (source.name, number)
        for source in SOURCES.glob("*.inc")
        for number, line in enumerate(source.read_text().splitlines(), 1)
        if line.endswith("// vectorised")
    }
    assert len(marked) >= 10
    assert sorted(marked - vectorised) == []


HALVES = """
#include <stdint.h>
#include <immintrin.h>
namespace {
#include "simd.inc"
}
extern "C" void double_bfloat(bfloat* p) { vd a, b; load2(p, a, b); store2(p, a + a, b + b); }
extern "C" void double_half(half16* p) { vd a, b; load2(p, a, b); store2(p, a + a, b + b); }
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="counts the instructions of AVX2 and AVX-512")
@pytest.mark.parametrize(("source", "register_bytes"), [("avx2", 32), ("avx512", 64)])
def test_half_types_are_converted_a_register_at_a_time(source, register_bytes, tmp_path):
    (tmp_path / "halves.cpp").write_text(HALVES)
    flags = [*build_settings("X86")[f"csrc/{source}.cpp"], f"-DVECTOR_BYTES={register_bytes}", f"-I{SOURCES}", "-S"]
    compiled(tmp_path / "halves.cpp", *flags, output=tmp_path / "halves.s")
    assembly = (tmp_path / "halves.s").read_text()
    instructions = re.findall(r"^\t(v\w+)", assembly, re.M)
    # Two registers of doubles are one of floats: each is widened and narrowed by one instruction.
    assert [instructions.count(name) for name in ("vpmovzxwd", "vcvtph2ps", "vcvtps2ph")] == [1, 1, 1]
    assert [instructions.count(name) for name in ("vcvtps2pd", "vaddpd")] == [4, 4]
    assert sum(name.startswith("vcvtpd2ps") for name in instructions) == 4
    assert [name for name in instructions if name.endswith(("ss", "sd"))] == []
