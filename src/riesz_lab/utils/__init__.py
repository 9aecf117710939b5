"""What every package of the lab may use: files, text, random numbers, imports by path."""
