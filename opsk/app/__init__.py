"""Use cases of the commands, the screens, the exporters and the advisor, without a way to show them."""
