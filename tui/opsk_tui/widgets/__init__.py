"""The parts of the screens: one file a widget."""
