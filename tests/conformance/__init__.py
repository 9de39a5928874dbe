"""Checks every call of TF Serving's protocols over the wire, against any server.

`make test-conformance TARGET=HOST:PORT` runs it against a server that is there; as a
part of the other tests it starts the endpoint of this project. See docs/conformance.md.
"""
