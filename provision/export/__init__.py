"""Values written in the formats of other programs, one file per format."""
