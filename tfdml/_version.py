"""Read the version of the installed package."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("tfdml")
except PackageNotFoundError:  # a checkout that is not installed
    __version__ = "0+unknown"
