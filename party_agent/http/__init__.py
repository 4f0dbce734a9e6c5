"""The edge of the local API beside `app`: bodies, their examples, and the routes of a party's own systems."""
