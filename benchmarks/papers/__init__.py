"""The papers' tables in small: every loss on the same images, with spread."""
