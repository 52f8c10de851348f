"""Holds one file per migration; a migration that has been released is never changed again."""
