"""One module a command: the dataclass of its options, and the function that takes them and returns a value of the model."""
