"""The conda manager: channels are solved and linked by py-rattler, wheels on top by uv."""
