#!/bin/sh
# The learner's container: it believes the one coordinator whose fingerprint was handed over with the studies.
set -eu
exec commingle learner serve --coordinator "$COMMINGLE_COORDINATOR" --cache /var/lib/commingle/learner \
    --coordinator-key "$(cat /var/lib/commingle/study/coordinator_fingerprint)" --host 0.0.0.0 --port 8200
