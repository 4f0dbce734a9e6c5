#!/bin/sh
# The last that an image of PostgreSQL does when it makes a database: a database without this file is not whole.
touch "$PGDATA/made"
