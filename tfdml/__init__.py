"""Deep metric learning for Keras, from training to image search."""

import lazy_loader

from tfdml import _missing_packages, _registration

_missing_packages.install()
_registration.install()
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
