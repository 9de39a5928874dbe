"""The papers' tables in small: every loss on the same pictures, with spread."""
