"""What CI requires: builds that match their sources, a certificate for each run, and policies met. Needs no GPU."""
