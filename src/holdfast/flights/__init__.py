"""The demo's data and dataflow: departures from New York in 2013, with the weather."""
