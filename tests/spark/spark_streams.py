"""Streams of Spark that read what Holdfast has put out."""

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

_LATE = "Python worker failed to connect back"


def begun(writer: DataStreamWriter) -> StreamingQuery:
    """Start it; returns when it has read all that there is.

    Spark waits ten seconds for the Python process of a stream's source, and no setting of Spark's
    changes that. On a busy machine it takes longer.
    """
    while True:
        query = writer.start()
        try:
            query.processAllAvailable()
        except StreamingQueryException as error:
            if _LATE not in str(error):
                raise
        else:
            return query
