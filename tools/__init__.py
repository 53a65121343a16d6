"""What developers of zerocfg run (the Makefile names each command). Not shipped."""
