"""One module per verb: the order of the stages."""
