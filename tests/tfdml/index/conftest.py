"""What the tests of indexes build with: for the contract, each kind in turn."""

import os
import sys

import pytest

if "INDEX_KINDS" in os.environ:  # a process of its own, see test_out_of_process.py
    # ScaNN searches without it, and the process starts in a tenth of the time.
    sys.modules["tensorflow"] = None

from tests.support.index_kinds import (
    ATTRIBUTES,
    KINDS,
    Builder,
    drawn,
    skip_unless_installed,
)


@pytest.fixture(scope="session")
def milvus_path(tmp_path_factory):
    """A milvus-lite that all tests of indexes share."""
    return str(tmp_path_factory.mktemp("milvus") / "milvus.db")


@pytest.fixture(params=KINDS)
def build(request, milvus_path):
    """Return what builds an index, of every kind in turn."""
    skip_unless_installed(request.param)
    builder = Builder(request.param, milvus_path)
    yield builder
    builder.close()


@pytest.fixture
def milvus(milvus_path):
    """Return what builds an index in Milvus."""
    skip_unless_installed("milvus")
    builder = Builder("milvus", milvus_path)
    yield builder
    builder.close()


@pytest.fixture(scope="session")
def _filled(milvus_path):
    built = {}

    def of(kind):
        if kind not in built:
            builder = Builder(kind, milvus_path)
            built[kind] = builder, builder(drawn(), None, ATTRIBUTES)
        return built[kind][1]

    yield of
    for builder, _ in built.values():
        builder.close()


@pytest.fixture
def filled(build, _filled):
    """An index of 48 rows with all kinds of attributes, which no test changes."""
    return _filled(build.kind)
