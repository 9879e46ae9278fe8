"""The append side of the consume queues: units, dispatch, repair."""
