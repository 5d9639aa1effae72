"""Ends the probe of one framework: runs its stages 5 to 7 in this process."""

STAGES[ASKED["framework"]]()
finish()
