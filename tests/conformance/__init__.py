"""Checks every call of TF Serving's protocols over the wire, against any server.

`make test-conformance TARGET=HOST:PORT` runs it against a running server, without
TARGET against the endpoint of this project in a process of its own; as a part of the
other tests it runs that endpoint in their process. See docs/conformance.md.
"""
