"""What CI insists on: files as the sources give them, each proven by a smoke-run, within the policies. Needs no GPU."""
