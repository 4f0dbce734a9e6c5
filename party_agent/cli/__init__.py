"""`commingle party`: one module for each group of commands."""
