"""Hold figures that a notebook shows."""

import io

from matplotlib.figure import Figure


class ShownFigure(Figure):
    """A figure that a notebook shows as an image if it ends a cell.

    Of a plain `Figure`, IPython prints the size alone until `%matplotlib inline`.
    """

    def _repr_png_(self) -> bytes:
        """Return the figure as a PNG, for IPython.

        Returns:
            The bytes of the file, at the figure's own dots per inch.
        """
        drawn = io.BytesIO()
        self.savefig(drawn, format="png")
        return drawn.getvalue()
