"""The command ``opsk setup``: is this host fit for opsk, and how is it told about the site? A file a part of it."""
