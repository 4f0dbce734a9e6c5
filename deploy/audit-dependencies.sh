#!/bin/sh
# Holds uv.lock against the advisories of the OSV database. Findings, and whatever else goes wrong, are a failure; only
# where the database cannot be reached does it say that nothing was checked, and succeed: `make lint` works offline.
set -u
export UV_HTTP_RETRIES="${UV_HTTP_RETRIES:-1}"
said=$(uv audit --locked 2>&1)
code=$?
if [ "$code" -eq 2 ] && printf '%s\n' "$said" | grep -q 'error sending request for url (https://api\.osv\.dev/'; then
    echo "dependency audit: NOT RUN, the OSV database cannot be reached from here" >&2
    exit 0
fi
printf '%s\n' "$said"
exit "$code"
