"""What the live engine, its optimizer and the machine say of themselves."""
