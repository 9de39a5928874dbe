# The public names; `lazy_loader` reads this file when one is first used.
from . import batch_designs as batch_designs
from . import export as export
from . import images as images
from . import index as index
from . import layers as layers
from . import losses as losses
from . import metrics as metrics
from . import models as models
from . import neighbors as neighbors
from . import ops as ops
from . import plots as plots
from . import tfa as tfa
from ._version import __version__ as __version__
