"""What every process of Commingle agrees on: formulas, documents, signatures and how a process runs."""

__version__ = "0.1.0"
