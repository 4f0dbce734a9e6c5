#!/bin/sh
# A clinic's container: enrols and registers its table at the first start, then runs the agent.
# Usage: clinic.sh NAME. The invite is handed over in the `secrets` volume, which stands for a confidential letter.
set -eu
name=$1
home=/var/lib/commingle/$name
tables=/var/lib/commingle/tables/$name

if ! cat "$home"/consortia/*/coordinator.json "$home/settings.json" 2>/dev/null | grep -q signing_key; then
    commingle party enrol --home "$home" --coordinator "$COMMINGLE_COORDINATOR" --invite "$(cat "/run/invites/$name")"
fi
if ! commingle party datasets list --home "$home" --json | grep -q '"name": "stays"'; then
    commingle party datasets add stays --home "$home" --source "$tables/table.csv" --subject-id subject_id \
        --schema "$tables/schema.json"
fi
exec commingle party serve --home "$home"
