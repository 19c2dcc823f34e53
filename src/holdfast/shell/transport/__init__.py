"""Channels between processes: ZeroMQ with CURVE. Nothing that crosses them is unpickled."""
