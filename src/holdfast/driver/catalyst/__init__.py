"""A DataFrame as Spark has analysed it, made a dataflow: Spark says what a query means, not we."""
