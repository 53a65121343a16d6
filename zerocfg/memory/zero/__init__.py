"""What DeepSpeed's ZeRO allocates: its allocations, replayed in their order."""
