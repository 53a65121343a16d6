"""``zerocfg lint`` once its command line is read: what it prints, and the files that it changes."""
