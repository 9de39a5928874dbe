# The public names; `lazy_loader` reads this file when one is first used.
from ._changes import RandomChanges as RandomChanges
from ._formats import is_image_name as is_image_name
from ._labeled import LabeledImages as LabeledImages
from ._labeled import labeled_images as labeled_images
from ._listing import FoundImages as FoundImages
from ._listing import find_images as find_images
from ._listing import list_images as list_images
from ._read import UnreadableImageError as UnreadableImageError
from ._read import encode_png as encode_png
from ._read import read_image as read_image
from ._reader import ImageReader as ImageReader
from ._resize import resize_image as resize_image
from ._view import RandomView as RandomView
from ._view import View as View
