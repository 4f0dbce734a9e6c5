#!/bin/sh
# A clinic's container: enrols at the first start, hands over to the clinic's own system how it is reached, then runs the
# agent. Usage: clinic.sh NAME. The invite is handed over in the `invites` volume, which stands for a confidential letter.
set -eu
umask 077
name=$1
home=/var/lib/commingle/$name
access=/var/lib/commingle/access/$name

if ! cat "$home"/consortia/*/coordinator.json "$home/settings.json" 2>/dev/null | grep -q signing_key; then
    commingle party enrol --home "$home" --coordinator "$COMMINGLE_COORDINATOR" --invite "$(cat "/run/invites/$name")"
fi
if ! commingle party datasets list --home "$home" --json | grep -q '"stays"'; then # its operator says what the clinic's system pushes
    commingle party datasets add stays --home "$home" --pushed --subject-id subject_id --schema "$home/stays.json"
fi
if [ ! -f "$access/token" ] || [ ! -f "$home/api.key" ]; then # `down -v` leaves volumes of a `run` that is over
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=agent.$name" \
        -addext "subjectAltName=DNS:agent.$name" -keyout "$home/api.key" -out "$access/api.pem" 2>/dev/null
    commingle party token revoke --home "$home" --name hospital 2>/dev/null || true # of a start that was interrupted
    commingle party token create --home "$home" --name hospital --scope register --scope propose --scope decide \
        --scope read >"$access/token.new"
    mv "$access/token.new" "$access/token"
fi
# agent.NAME is this container on the clinic's own network, and so the one address that its API listens at
exec commingle party serve --home "$home" --host "agent.$name" --port 8443 --tls-certificate "$access/api.pem" \
    --tls-key "$home/api.key"
