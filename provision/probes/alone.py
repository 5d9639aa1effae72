"""Last of a framework's probe: its stages 5 to 7, alone in this process."""

STAGES[ASKED["framework"]]()
finish()
