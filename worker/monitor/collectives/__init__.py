"""Records of collectives: asked of each rank's Flight Recorder, and read from what ended ranks left."""
