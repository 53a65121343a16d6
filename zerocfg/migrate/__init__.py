"""From one set of releases to another: what changes for the files of a run, and the edits that keep what they mean."""
