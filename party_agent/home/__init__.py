"""The files of a party's home that people edit."""
