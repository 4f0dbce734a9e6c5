#!/bin/sh
# The images that others make and ours are built from or run beside, by digest: a tag can be moved, a digest cannot.
#
#   sh deploy/images.sh pin      look the digests up at their registries and write deploy/images.env; look at the diff
#   sh deploy/images.sh check    fail unless every image in deploy/images.env is named by its digest
#   docker compose --env-file deploy/images.env up --build --wait
set -eu
file=${COMMINGLE_IMAGES:-$(dirname "$0")/images.env}

pin() {
    for pair in PYTHON_IMAGE=python:3.11-slim POSTGRES_IMAGE=postgres:15; do
        image=${pair#*=}
        digest=$(docker buildx imagetools inspect "$image" --format '{{.Manifest.Digest}}')
        echo "${pair%%=*}=$image@$digest"
    done >"$file.new"
    mv "$file.new" "$file"
    check
}

check() {
    [ -f "$file" ] || {
        echo "$file is missing: run sh deploy/images.sh pin where the registries can be reached, and commit it" >&2
        exit 1
    }
    for name in PYTHON_IMAGE POSTGRES_IMAGE; do
        grep -Eq "^$name=[^@[:space:]]+@sha256:[0-9a-f]{64}\$" "$file" || {
            echo "$name in $file is not named by its digest: run sh deploy/images.sh pin" >&2
            exit 1
        }
    done
}

case ${1:-} in
pin) pin ;;
check) check ;;
*) sed -n '4,6p' "$0" >&2 && exit 2 ;;
esac
