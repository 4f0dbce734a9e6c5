#!/bin/sh
# Runs once, before anything else: every party makes its keys, the members compare fingerprints, secrets are written.
# It stands for the people of a consortium meeting in one room; in a deployment nobody has all these folders.
set -eu
home=/var/lib/commingle
umask 077
clinics="registration laboratory ward"

if [ ! -f "$home/secrets/database_url" ]; then
    password=$(python -c 'import secrets; print(secrets.token_urlsafe(24))')
    printf '%s' "$password" >"$home/secrets/postgres_password"
    printf 'postgresql://commingle:%s@postgres:5432/commingle' "$password" >"$home/secrets/database_url"
    chmod 0444 "$home/secrets/postgres_password" # PostgreSQL runs as another user; the volume is mounted to it alone
fi

field() { python -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }

if [ ! -f "$home/coordinator/settings.json" ]; then
    fingerprint=$(commingle coordinator init --home "$home/coordinator" --name hub \
        --database-url-file "$home/secrets/database_url" --json | field fingerprint)
    printf '%s' "$fingerprint" >"$home/study/coordinator_fingerprint" # public; whoever learns from releases pins it
    cat >/tmp/policy.json <<POLICY
{"mechanisms": ["rmgm", "dgm", "moments"], "max_epsilon": 8, "max_delta": 1e-5}
POLICY
    for clinic in $clinics; do
        linkage=$([ "$clinic" = registration ] || echo "--linkage-key $home/registration/keys/linkage.key")
        # shellcheck disable=SC2086 # the option is two words or none
        commingle party init --home "$home/$clinic" --name "$clinic" --epsilon-cap 20 --policy /tmp/policy.json \
            $linkage --json | field fingerprint >"/tmp/$clinic"
    done
    for clinic in $clinics; do
        for member in $clinics; do
            [ "$clinic" = "$member" ] || commingle party pin --home "$home/$clinic" "$member" "$(cat "/tmp/$member")"
        done
    done
fi

[ -f "$home/study/moments.json" ] && [ -f "$home/tables/ward/schema.json" ] || python /usr/local/lib/commingle/tables.py "$home/tables" "$home/study"

for clinic in $clinics; do
    cp "$home/tables/$clinic/schema.json" "$home/$clinic/stays.json" # what the members have agreed on, for each clinic's operator
done
