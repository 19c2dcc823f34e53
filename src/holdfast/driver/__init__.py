"""Makes a dataflow run on Spark, and tells of it: the query handle, progress, the batch twin."""
