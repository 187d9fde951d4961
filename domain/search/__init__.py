"""The language in which runs are searched: `state:failed lr>0.001 val/loss<0.2 "out of memory"`."""
