#!/usr/bin/env bash
# Build the image of benchsuite with docker, podman or buildah.
#
#   docker/build.sh [TAG] [-- OPTIONS]     TAG: name of the image, benchsuite by default
#
# OPTIONS go to the engine, such as --build-arg BASE=IMAGE, --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cpu
# or --no-cache. ENGINE chooses the engine.
set -euo pipefail

die() { echo "build.sh: $*" >&2; exit 2; }

tag=''
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
        --) shift; break ;;
        -*) die "unknown option $1; options of the engine come after --" ;;
        *) [ -z "$tag" ] || die "one TAG, not '$tag' and '$1'; options of the engine come after --"; tag=$1; shift ;;
    esac
done

root=$(cd "$(dirname "$0")/.." && pwd)
engine=${ENGINE:-}
for name in docker podman buildah; do
    if [ -z "$engine" ] && command -v "$name" >/dev/null; then engine=$name; fi
done
[ -n "$engine" ] || die "none of docker, podman, buildah is on PATH; install one of them"
command -v "$engine" >/dev/null || die "ENGINE=$engine is not on PATH"

# The image has no history of git: the commit comes from here.
commit=$(git -C "$root" rev-parse HEAD 2>/dev/null || true)
if [ -n "$commit" ] && [ -n "$(git -C "$root" status --porcelain -- benchsuite profiles weights)" ]; then commit+=+dirty; fi
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$root/pyproject.toml")

exec "$engine" build --file "$root/docker/Dockerfile" --tag "${tag:-benchsuite}" \
    --build-arg "COMMIT=$commit" --build-arg "VERSION=$version" "$@" "$root"
