"""Builds the wheel. `cargo xtask wheel` puts the library into hearth/lib and says the version."""

import os

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.dist import Distribution


class WithLibrary(Distribution):
    def has_ext_modules(self):
        return True


class AnyPython(bdist_wheel):
    """The library is C's, so the wheel depends on the platform, but on no version of Python."""

    def get_tag(self):
        _, _, platform = super().get_tag()
        return "py3", "none", os.environ.get("HEARTH_WHEEL_PLATFORM", platform)


setup(
    version=os.environ.get("HEARTH_VERSION", "0.0.0"),
    distclass=WithLibrary,
    cmdclass={"bdist_wheel": AnyPython},
)
