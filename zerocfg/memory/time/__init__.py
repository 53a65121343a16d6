"""Time of an optimizer step: work, traffic and the rates that devices and links reach."""
