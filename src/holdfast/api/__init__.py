"""The language: what an application writes, dataflows, expressions, protections."""
