"""Give requests that may share a batch their turns, a long one no more than others."""

from collections import deque
from collections.abc import Hashable, Iterator

from .costs import peak_bytes
from .request import Piece, Request


class _Turn:
    """A request in the queue, of which some pieces may have been taken."""

    __slots__ = ("at", "next", "pieces", "request", "rows")

    def __init__(self, request: Request, rows: int | None, at: float) -> None:
        self.request = request
        self.rows = rows  # that are left; None if it is run as it is
        self.at = at
        self.pieces: Iterator[Piece] = request.pieces()
        self.next: Piece | None = next(self.pieces)

    def pop(self) -> Piece:
        piece = self.next
        assert piece is not None  # noqa: S101  (an empty turn leaves the queue)
        self.next = next(self.pieces, None)
        if self.rows is not None:
            self.rows -= piece.rows
        return piece

    def rest(self) -> list[Piece]:
        left = [] if self.next is None else [self.next, *self.pieces]
        self.next = None
        return left


class TurnQueue:
    """Requests that may share a batch, in the order of their turns.

    Args:
        key: What they have in common.
        group: Version and signature, the limit of which they share.
        max_batch_size: Most rows of a batch, which a request that is run as it is
            fills.
        most_counted: What a long request counts at most.

    Attributes:
        key: As given.
        group: As given.
        size: Rows of all requests; of long ones no more than `most_counted`.
    """

    def __init__(
        self, key: Hashable, group: Hashable, max_batch_size: int, most_counted: int
    ) -> None:
        self.key = key
        self.group = group
        self.size = 0
        self._most_rows = max_batch_size
        self._most_counted = most_counted
        self._turns: deque[_Turn] = deque()

    @property
    def first(self) -> Request:
        """The request whose turn it is."""
        return self._turns[0].request

    @property
    def turn_at(self) -> float:
        """Since when that request has waited for this turn."""
        return self._turns[0].at

    @property
    def is_empty(self) -> bool:
        """Whether there is no request."""
        return not self._turns

    def count(self, rows: int | None) -> int:
        """Return what a request of so many rows counts; None if it is run as it is."""
        return self._most_rows if rows is None else min(rows, self._most_counted)

    def add(self, request: Request, rows: int | None, now: float) -> None:
        """Put a request behind all others."""
        self._turns.append(_Turn(request, rows, now))
        self.size += self.count(rows)

    def take(self, most_bytes: int, now: float) -> list[Piece]:
        """Take the pieces of a batch, at most one of each request.

        A request of which something is left stands behind all others then.

        Args:
            most_bytes: Memory for the images of a batch; a piece that takes more is
                one by itself.
            now: The time.

        Returns:
            The pieces, in the order of the turns; among them all that is left of
            requests that are over, which are not run.
        """
        pieces: list[Piece] = []
        size, largest = 0, list[list[int]]()
        for _ in range(len(self._turns)):
            turn = self._turns[0]
            counted = self.count(turn.rows)
            if turn.request.is_over():
                pieces += turn.rest()
            elif turn.next is not None:
                rows = turn.next.rows or self._most_rows
                costs = turn.next.costs()
                if size and not self._fits(
                    turn.request, size + rows, [*largest, costs], most_bytes
                ):
                    break
                size, largest = size + rows, [*largest, costs]
                pieces.append(turn.pop())
            self._turns.popleft()
            self.size -= counted
            if turn.next is not None:
                turn.at = now
                self._turns.append(turn)
                self.size += self.count(turn.rows)
        return pieces

    def rest(self) -> list[Piece]:
        """Take the pieces of all requests."""
        return [piece for turn in self._turns for piece in turn.rest()]

    def _fits(
        self, request: Request, rows: int, largest: list[list[int]], most_bytes: int
    ) -> bool:
        if rows > self._most_rows:
            return False
        if request.costs is None:
            return True
        return peak_bytes(largest, request.costs.at_once) <= most_bytes
