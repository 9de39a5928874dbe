"""Bytes that were right and have been damaged, as Hypothesis strategies."""

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st


def fuzzing(examples):
    """Make a run of so many requests, of which none is tried again when smaller."""
    return settings(
        # The same requests in each run: a failure here fails again on any machine.
        derandomize=True,
        database=None,
        deadline=None,
        max_examples=examples,
        # Shrinking would end, and start, a server many times.
        phases=(Phase.explicit, Phase.generate),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )


_INTERESTING = (
    *(b"\x00", b"\xff", b"\x7f", b"\x80", b"\x80\x80", b"\xff\xff"),
    *(b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"),
    *(b"\xff" * 9 + b"\x01", b"\x80" * 9 + b"\x01", b"\xff\xff\xff\xff\x0f"),
)


@st.composite
def mutated(draw, originals):
    """Damage bytes in one to four places.

    Args:
        draw: Given by Hypothesis.
        originals: Bytes to begin with, at least one, none empty.
    """
    data = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["flip", "set", "insert", "cut", "copy", "end"]))
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        length = draw(st.integers(1, 16))
        if kind == "flip" and data:
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "set":
            piece = draw(st.sampled_from(_INTERESTING))
            data[at : at + len(piece)] = piece
        elif kind == "insert":
            data[at:at] = draw(
                st.one_of(
                    st.binary(min_size=1, max_size=8), st.sampled_from(_INTERESTING)
                )
            )
        elif kind == "cut":
            del data[at : at + length]
        elif kind == "copy":
            to = draw(st.integers(0, len(data)))
            data[to:to] = data[at : at + length]
        else:
            del data[at:]
    return bytes(data)
