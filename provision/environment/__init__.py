"""An environment on disk: its place, transactions, what it says of itself."""
