#!/bin/sh
# Runs once when the coordinator is up: its operator writes an invite for every clinic, which is good for three days. The
# invite of a clinic that is enrolled is kept: its agent may have been interrupted before it knew.
set -eu
umask 077
for clinic in registration laboratory ward; do
    invite=/run/invites/$clinic
    [ -z "$(find "$invite" -size +0 -mmin -4000 2>/dev/null)" ] || continue
    if said=$(commingle coordinator invite --home /var/lib/commingle/coordinator --party "$clinic" --json); then
        printf '%s' "$said" | python -c 'import json, sys; print(json.load(sys.stdin)["invite"])' >"$invite.new"
        mv "$invite.new" "$invite"
    else
        printf '%s' "$said" | grep -q '"name-taken"'
    fi
done
