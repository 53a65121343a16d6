"""What a face asks for: what is linted, with which settings, selection of rules, baseline and cache."""
