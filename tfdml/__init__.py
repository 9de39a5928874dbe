"""Deep metric learning for Keras, from training to image search."""

import lazy_loader

from tfdml._registration import install

install()
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
