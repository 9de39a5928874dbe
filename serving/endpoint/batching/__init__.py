"""Dynamic batching: requests that wait together run together."""
