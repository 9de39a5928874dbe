"""The limits of the endpoint unless others are set."""

ARRIVAL_SECONDS = 60.0
"""Time in which a REST body or a gRPC message must arrive."""

MAX_BODY_BYTES = 64 * 2**20
"""Longest REST body, unpacked."""

MAX_MESSAGE_BYTES = 64 * 2**20
"""Longest gRPC message, in both directions."""

MAX_CONCURRENT_CALLS = 128
"""gRPC calls that are taken at one time."""

MAX_PIXELS = 64_000_000
"""Width times height of a picture. TensorFlow takes 15 bytes for each pixel."""

TIMEOUT_SECONDS = 30.0
"""How long a prediction over REST may take, waiting included, as in TF Serving."""

GRACE_SECONDS = 20.0
"""How long requests under way may take after SIGTERM."""
