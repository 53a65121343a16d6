"""What the subcommands of `zerocfg smoke` share: their options, the runs that they take, and the runs in turn."""
