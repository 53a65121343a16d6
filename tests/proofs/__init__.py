"""Rules' claims, executed on the real libraries."""
