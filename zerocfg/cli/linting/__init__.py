"""What every command that lints shares: the job, the selection of rules, the baseline, fixes and ignores."""
