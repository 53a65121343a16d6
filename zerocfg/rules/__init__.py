"""The analyses: one file a family, each rule with its documentation, examples and proof in one place."""
