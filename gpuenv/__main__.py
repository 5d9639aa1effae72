"""`python -m gpuenv`: the command `gpuenv`."""

from provision.__main__ import main

if __name__ == "__main__":
    main()
