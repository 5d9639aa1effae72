"""From a request to a lock: uv answers, and the measured rows judge its answer."""
