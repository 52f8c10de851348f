"""Where do the screens' data come from? One file a source; each may be silent, and none waits for another."""
