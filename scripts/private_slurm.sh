#!/bin/sh
# Unpack Slurm and munge of Debian or Ubuntu into the folder DIR, for tests/commands/test_slurm.py. Nothing is installed:
# Slurm's commands on PATH would make this machine a login node of a cluster.
set -eu
mkdir -p "$1"
dir=$(cd "$1" && pwd)

simulate() {
    apt-get install --simulate --yes --no-install-recommends slurmctld slurmd slurm-client munge
}

if ! plan=$(simulate); then
    $([ "$(id -u)" = 0 ] || echo 'sudo -n') apt-get update
    plan=$(simulate)
fi
cd "$(mktemp -d)"
echo "$plan" | sed -n 's/^Inst \([^ ]*\).*/\1/p' | xargs apt-get download
for deb in ./*.deb; do
    dpkg -x "$deb" "$dir"
done
rm -r "$PWD"
