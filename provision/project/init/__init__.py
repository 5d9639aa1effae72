"""`gpuenv init`: what a folder shows of its needs, and the files that are written."""
