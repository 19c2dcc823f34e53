"""What stands between two nodes: output queues, input queues, acknowledgements. [HA §5]"""
