"""FSDP 1 and FSDP 2: which units there are, and how they come and go in one optimizer step."""
