"""Builds the kernels in csrc/ into one plain shared library, which `riesz.backends.cpu` loads with ctypes.

The rest of the package is described in pyproject.toml. The library has no Python in it, so one wheel per platform
serves every Python; and it is optional: without a C++17 compiler the install succeeds and the eager backend serves.
"""

import platform
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

COMMON = [
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-g0",
    "-Wno-psabi",
]
X86 = {
    "csrc/avx2.cpp": ["-mavx2", "-mfma", "-mf16c"],
    "csrc/avx512.cpp": [
        "-mavx512f",
        "-mavx512vl",
        "-mavx512dq",
        "-mavx512bw",
        "-mfma",
        "-mf16c",
        "-mprefer-vector-width=512",
    ],
}
SHARED = [
    "csrc/riesz.cpp",
    "csrc/scheduler.cpp",
    "csrc/long_column.cpp",
    "csrc/shards.cpp",
    "csrc/coefficients.cpp",
    "csrc/portable.cpp",
]
ON_X86 = platform.machine().lower() in ("x86_64", "amd64")


class BuildLibrary(build_ext):
    """Compiles each file for its own instruction set; which one runs is decided when the library is loaded."""

    def get_ext_filename(self, fullname):
        # No tag of a Python version: it is not a Python module.
        return str(Path(*fullname.split("."))) + ".so"

    def build_extension(self, ext):
        objects = []
        for source in ext.sources:
            flags = [*COMMON, *X86.get(source, [])]
            objects += self.compiler.compile([source], output_dir=self.build_temp, extra_postargs=flags)
        path = Path(self.get_ext_fullpath(ext.name))
        path.parent.mkdir(parents=True, exist_ok=True)
        self.compiler.link_shared_object(objects, str(path), target_lang="c++")

    def get_export_symbols(self, ext):
        return []


class PlatformWheel(bdist_wheel):
    """One wheel for every Python 3 of this platform."""

    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


setup(
    ext_modules=[
        Extension(
            "riesz.backends.libriesz",
            sources=[*SHARED, *(X86 if ON_X86 else [])],
            depends=[str(path) for path in sorted(Path("csrc").glob("*.[hi]*"))],
            optional=True,
        )
    ],
    cmdclass={"build_ext": BuildLibrary, "bdist_wheel": PlatformWheel},
)
