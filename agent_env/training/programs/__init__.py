"""What the programs do once their job is read and their process settled: torch comes in here."""
