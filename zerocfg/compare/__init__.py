"""Two builds, a build and what is on disk, or two configs: which effective values differ, and why."""
