#!/bin/sh
# Runs once, before anything else: every party makes its keys, the members compare fingerprints, secrets are written.
# It stands for the people of a consortium meeting in one room; in a deployment nobody has all these folders. What is done
# is skipped, so that a start that was interrupted can be repeated.
set -eu
home=/var/lib/commingle
umask 077
clinics="registration laboratory ward"

if [ ! -f "$home/secrets/database_url" ]; then
    password=$(python -c 'import secrets; print(secrets.token_urlsafe(24))')
    printf '%s' "$password" >"$home/secrets/postgres_password"
    chmod 0444 "$home/secrets/postgres_password" # PostgreSQL runs as another user; the volume is mounted to it alone
    printf 'postgresql://commingle:%s@postgres:5432/commingle' "$password" >"$home/secrets/database_url.new"
    mv "$home/secrets/database_url.new" "$home/secrets/database_url"
fi

fingerprint() {
    python -c 'import sys; from commingle.shared.runtime import files; from pathlib import Path
print(files.load_signing_key(Path(sys.argv[1])).fingerprint)' "$home/$1/keys/signing.key"
}

[ -f "$home/coordinator/keys/signing.key" ] || commingle coordinator init --home "$home/coordinator" --name hub \
    --database-url-file "$home/secrets/database_url"
fingerprint coordinator >"$home/study/coordinator_fingerprint" # public; a learner pins it
cat >/tmp/policy.json <<POLICY
{"mechanisms": ["rmgm", "dgm", "moments"], "max_epsilon": 8, "max_delta": 1e-5}
POLICY
for clinic in $clinics; do
    linkage=$([ "$clinic" = registration ] || echo "--linkage-key $home/registration/keys/linkage.key")
    # shellcheck disable=SC2086 # the option is two words or none
    [ -f "$home/$clinic/settings.json" ] || {
        rm -rf "${home:?}/$clinic"/* # of an interrupted one: keys that nobody has seen
        commingle party init --home "$home/$clinic" --name "$clinic" --epsilon-cap 20 --policy /tmp/policy.json $linkage
    }
done
for clinic in $clinics; do
    [ -z "$(find "$home/$clinic" -name pins.json)" ] || continue
    pins=
    for member in $clinics; do
        [ "$clinic" = "$member" ] || pins="$pins $member=$(fingerprint "$member")"
    done
    # shellcheck disable=SC2086 # one word for each member
    commingle party pin --home "$home/$clinic" $pins
done

[ -f "$home/study/moments.json" ] && [ -f "$home/tables/ward/schema.json" ] || python /usr/local/lib/commingle/tables.py "$home/tables" "$home/study"

for clinic in $clinics; do
    cp "$home/tables/$clinic/schema.json" "$home/$clinic/stays.json" # what the members have agreed on, for each clinic's operator
done
