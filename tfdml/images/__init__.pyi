# The public names; `lazy_loader` reads this file when one is first used.
from ._in_graph import training_form as training_form
from ._read import GRAPH_FORMATS as GRAPH_FORMATS
from ._read import UPLOAD_FORMATS as UPLOAD_FORMATS
from ._read import UnreadableImageError as UnreadableImageError
from ._read import encode_png as encode_png
from ._read import list_images as list_images
from ._read import read_image as read_image
from ._read import resample as resample
from ._read import resize_image as resize_image
from ._read import warnings_ignored as warnings_ignored
from ._view import RandomView as RandomView
from ._view import View as View
from ._view import signature_name as signature_name
from ._view import view_of_signatures as view_of_signatures
