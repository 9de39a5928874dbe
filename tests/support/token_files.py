"""Files of bearer tokens, as `serving.web.access.TokenAccess` reads them."""


def write_tokens(file, text, mode=0o600):
    """Replace the file at once, as its documentation tells; returns it."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.chmod(mode)
    new.replace(file)
    return file
