"""The gallery: images, their index, and searching them; no HTTP."""
