"""Write reports, as text and as HTML."""
