"""What shows a running query to people and to monitoring."""
