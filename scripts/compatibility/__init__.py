"""Compute the data of the compatibility page: questions in classes, their answers and heat maps."""
