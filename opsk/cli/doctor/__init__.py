"""The command ``opsk doctor``: what is wrong at this site? A file a part of it."""
