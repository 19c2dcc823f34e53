"""The shells of the embedded chunk store: master service, data node task, client."""
