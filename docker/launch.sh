#!/usr/bin/env bash
# Start benchsuite in its image with docker or podman: with all GPUs of the host, as the calling user.
#
#   docker/launch.sh [DATA] [TAG] -- COMMAND...
#
#   docker/launch.sh -- doctor
#   docker/launch.sh data -- jobs standard --repeat 3
#   docker/launch.sh data registry/benchsuite:1 -- report
#
# DATA    folder of the data sets, which the container reads; ./data by default, if it exists
# TAG     name of the image; benchsuite by default
#
# The container reads the current folder (as /work), so that a profile or a model of your own is found. It writes the
# results to ./results (as /results) and nothing else of the host. Variables:
#   RESULTS      another folder for the results
#   WRITE_DATA   1: the container may write DATA, as `prepare` must
#   ENGINE       docker or podman
#   SHM_SIZE     shared memory of the container, such as 16g; by default it shares that of the host
#   OPTIONS      more options of the engine, separated by blanks, such as "--cpuset-cpus 0-15"
set -euo pipefail

die() { echo "launch.sh: $*" >&2; exit 2; }

places=()
while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) sed -n '2,22s/^# \{0,1\}//p' "$0"; exit 0 ;;
        --) shift; break ;;
        -*) die "unknown option $1; the words for benchsuite come after --" ;;
        *) places+=("$1"); shift ;;
    esac
done
[ ${#places[@]} -le 2 ] || die "at most DATA and TAG, not '${places[*]}'; the words for benchsuite come after --"
tag=${places[1]:-benchsuite}

engine=${ENGINE:-}
for name in docker podman; do
    if [ -z "$engine" ] && command -v "$name" >/dev/null; then engine=$name; fi
done
[ -n "$engine" ] || die "neither docker nor podman is on PATH; for Apptainer see docs/containers.md"
case ${engine##*/} in docker | podman) ;; *) die "ENGINE=$engine is neither docker nor podman" ;; esac
command -v "$engine" >/dev/null || die "ENGINE=$engine is not on PATH"

# A folder as an absolute path that a mount can hold.
folder() {
    [ -d "$2" ] || die "no $1 folder $2"
    case $(cd "$2" && pwd) in *[,:\"]*) die "$2: a mount cannot hold a comma, a colon or a quote; rename the folder" ;; esac
    (cd "$2" && pwd)
}

here=$(folder current .)
results=${RESULTS:-results}
mkdir -p "$results" || die "$results cannot be made; set RESULTS to a folder of yours"
results=$(folder results "$results")
words=(run --rm --workdir /work)
words+=(--mount "type=bind,source=$here,target=/work,readonly")
words+=(--mount "type=bind,source=$results,target=/results")
if [ -n "${places[0]:-}" ] || [ -d data ]; then
    data=$(folder data "${places[0]:-data}")
    words+=(--mount "type=bind,source=$data,target=/data$([ "${WRITE_DATA:-}" = 1 ] || echo ,readonly)")
fi

# The files that the container writes belong to the caller. Nothing in it can gain rights.
words+=(--user "$(id -u):$(id -g)" --cap-drop ALL --security-opt no-new-privileges)
if [ "${engine##*/}" = podman ]; then
    # SELinux would refuse the mounts and the GPUs.
    words+=(--security-opt label=disable)
    if [ "$(id -u)" != 0 ]; then words+=(--userns keep-id); fi
else
    # CUDA and NCCL pin memory. podman keeps the caller's limit, which it may not raise.
    words+=(--ulimit memlock=-1)
fi
# Loaders with worker processes share batches in /dev/shm, and NCCL its buffers.
if [ -n "${SHM_SIZE:-}" ]; then words+=(--shm-size "$SHM_SIZE"); else words+=(--ipc host); fi
if nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
    case ${engine##*/} in
        podman) words+=(--device nvidia.com/gpu=all) ;;
        docker) words+=(--gpus all) ;;
    esac
    if [ -n "${CUDA_VISIBLE_DEVICES+set}" ]; then words+=(--env CUDA_VISIBLE_DEVICES); fi
fi
if [ -t 0 ] && [ -t 1 ]; then words+=(--interactive --tty); fi
read -ra more <<<"${OPTIONS:-}"
exec "$engine" "${words[@]}" ${more[@]+"${more[@]}"} "$tag" "$@"
