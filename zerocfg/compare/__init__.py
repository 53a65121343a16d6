"""Two builds, a build and what is on disk, or two configs: what differs in meaning, and why."""
