"""The nouns that every protocol shares."""
