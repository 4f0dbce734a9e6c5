#!/bin/sh
# Has the registration's system propose the study of MECHANISM, unless it has, and fits what is published by the learner.
# Usage: fit.sh TARGET FEATURE...
set -eu
python /usr/local/lib/commingle/hospital.py registration propose "/var/lib/commingle/study/$MECHANISM.json"
exec python /usr/local/lib/commingle/fit.py http://learner:8200 "$MECHANISM" "$@"
