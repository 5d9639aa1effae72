"""conda: packages of channels, then wheels."""
