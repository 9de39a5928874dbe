"""The search service and its page, over HTTP."""
