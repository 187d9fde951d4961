"""An attempt's directory made ready: interpreter, code, checkpoint to resume from."""
