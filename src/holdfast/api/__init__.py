"""What an application writes: dataflows, expressions, protections; and what it gets back."""
