"""What the compatibility page shows: questions in classes, their answers, the heat maps, the page."""
