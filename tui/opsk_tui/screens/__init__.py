"""The screens of ``opsk top``: one file a screen."""
