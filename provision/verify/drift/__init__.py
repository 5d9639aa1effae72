"""Stage `lock`: how an environment differs from the lock that it was built from."""
