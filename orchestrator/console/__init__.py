"""What a person sees: tables, and progress. Nothing else imports rich."""
