#!/bin/sh
# Leaves of a Debian base image with Python what a process needs: no package managers, no Perl, no programs that change who
# somebody is, no documentation. dpkg's list of packages stays true, so scanners know what is there.
set -eu
useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin commingle
unneeded='apt|libapt-pkg.*|gpgv|sqv|debian-archive-keyring|debconf|perl-base|libgnutls30.*|libp11-kit0
adduser|passwd|login.*|mount|util-linux|e2fsprogs|libext2fs2.*|logsave|libss2|sysvinit-utils|bash|tar|diffutils|ncurses-.*
python3-(pip|setuptools|wheel|venv|distutils|lib2to3|pkg-resources)(-whl)?|python3\.[0-9]+-venv'
packages=$(dpkg-query -W -f '${Package}\n' | grep -Ex "$unneeded")
# in one call: dpkg itself does not start without some of them. shellcheck disable=SC2086 # a word for each package
dpkg --purge --force-depends --force-remove-essential --force-remove-protected $packages >/tmp/purged 2>&1 || { cat /tmp/purged; exit 1; }
rm -rf /tmp/purged /usr/local/lib/python3.*/site-packages/* /usr/local/bin/pip* /usr/*/lib/python3.*/ensurepip /usr/lib/python3.*/pydoc_data /usr/local/lib/python3.*/pydoc_data \
    /var/lib/apt /var/cache/* /var/log/* /usr/share/man /usr/share/locale /usr/share/info /usr/share/zoneinfo/right /usr/lib/*/gconv
find /usr/share/doc -type f ! -name copyright -delete
find / -xdev -type f -perm /6000 -exec chmod a-s {} +
python3 -c 'import bz2, ctypes, hashlib, lzma, sqlite3, ssl, uuid, zlib, zoneinfo; zoneinfo.ZoneInfo("Europe/Berlin")'
