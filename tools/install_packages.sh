#!/usr/bin/env bash
# install_packages.sh SECTION...: installs what is missing of the sections of
# tools/apt-packages.txt. Silent when nothing is.
set -euo pipefail
list=$(dirname "$0")/apt-packages.txt

if ! command -v dpkg-query >/dev/null; then
  echo "No Debian packages here: have what $list names in place." >&2
  exit 0
fi

missing=()
for section in "$@"; do
  packages=$(sed -n "/^\[$section\]/,/^\[/{/^[a-z]/p}" "$list")
  if [ -z "$packages" ]; then
    echo "no section [$section] in $list" >&2
    exit 1
  fi
  for package in $packages; do
    status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null ||
             true)
    [ "$status" = installed ] || missing+=("$package")
  done
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" != 0 ]; then
  echo "Missing packages. As root, run:" >&2
  echo "  apt-get update && apt-get install -y ${missing[*]}" >&2
  exit 1
fi
echo "Installing ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq </dev/null
apt-get install -qq -y --no-install-recommends "${missing[@]}" \
  </dev/null >/dev/null
