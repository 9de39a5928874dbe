"""What every server here shares: status, tokens, TLS, sockets, limits, logs."""
