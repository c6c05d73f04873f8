#!/usr/bin/env bash
# Prepare control groups student0, student1, ... for benchsuite, one for each task that runs side by side. They have equal
# memory and equally many CPUs, and share none. They belong to a user, who can enter them without being root.
#
#   sudo scripts/cgroup_setup.sh [--count N] [--user NAME]     N: number of GPUs; NAME: who called sudo
#   sudo scripts/cgroup_setup.sh --remove
#
# Run it once after each boot. Running it again changes nothing, unless N is new. With cgroup v2, a process can enter a
# group only from another group of the same user. The script moves the calling shell to such a group, so run it in each
# shell in which you want to use benchsuite.
set -euo pipefail

die() { echo "cgroup_setup.sh: $*" >&2; exit 1; }

count='' user=${SUDO_USER:-root} remove=''
while [ $# -gt 0 ]; do
    case $1 in
        --count) [ $# -gt 1 ] || die "--count needs a number"; count=$2; shift 2 ;;
        --user) [ $# -gt 1 ] || die "--user needs a name"; user=$2; shift 2 ;;
        --remove) remove=1; shift ;;
        -h | --help) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 0 ;;
        *) die "not understood: $1 (see --help)" ;;
    esac
done
[ "$(id -u)" = 0 ] || die "must be run as root: sudo $0"
id -u "$user" >/dev/null 2>&1 || die "there is no user $user"

# --- where ------------------------------------------------------------------------------------------------------------

# The folder for a controller's groups ("unified": version 2): our own group, or the nearest group above it
# that is not a unit of systemd, since a unit can end with a login. The limits on us thus also hold for the groups.
top() {
    local mount part path
    if [ "$1" = unified ]; then
        read -r part mount < <(awk '$0 ~ / - cgroup2 / { print $4, $5; exit }' /proc/self/mountinfo) || return 1
        path=$(sed -n 's/^0:://p' /proc/self/cgroup)
    else
        read -r part mount < <(awk -v c="$1" '$0 ~ " - cgroup .*[, ]" c "(,|$)" { print $4, $5; exit }' /proc/self/mountinfo) ||
            return 1
        path=$(awk -F: -v c="$1" '("," $2 ",") ~ ("," c ",") { print $3; exit }' /proc/self/cgroup)
    fi
    [ "$part" = / ] || path=${path#"$part"}
    path=/${path#/}
    case $path in */benchsuite/shell) path=${path%/benchsuite/shell} ;; esac
    while [[ $path == *.slice || $path == *.scope || $path == *.service ]]; do path=${path%/*}; done
    path=$mount${path%/}
    # Version 2 allows no limits below a group with processes, except the root: then a sibling of our own group.
    if [ "$1" = unified ] && [ -e "$path/cgroup.type" ] && [ -n "$(cat "$path/cgroup.procs")" ]; then path=${path%/*}; fi
    [ -d "$path" ] && echo "$path"
}

# The folder that holds student0 ... for a controller; nothing if no hierarchy has the controller.
place() {
    local unified
    if top "$1" 2>/dev/null; then return; fi
    unified=$(top unified 2>/dev/null) || return 1
    grep -qw "$1" "$unified/cgroup.controllers" && echo "$unified/benchsuite"
}

# --- removing ---------------------------------------------------------------------------------------------------------

# Remove a group with the empty groups below it.
remove_group() {
    local holds
    holds=$(find "$1" -name cgroup.procs -exec cat {} + | tr '\n' ' ')
    [ -z "$holds" ] || die "$1 is in use by processes $holds: end them first"
    for _ in 1 2 3 4 5; do
        find "$1" -depth -type d -exec rmdir {} + 2>/dev/null || true
        [ -d "$1" ] || return 0
        sleep 0.2
    done
    die "$1 cannot be removed"
}

# Remove the groups of a folder from the given number on.
remove_from() {
    local folder
    for folder in "$1"/student[0-9]*; do
        if [ -d "$folder" ] && [ "${folder##*/student}" -ge "$2" ]; then remove_group "$folder"; fi
    done
}

unified=$(top unified 2>/dev/null || true)
if [ -n "$remove" ]; then
    for controller in cpuset memory; do
        if folder=$(place $controller) && [ -d "$folder" ]; then remove_from "$folder" 0; fi
    done
    if [ -n "$unified" ] && [ -d "$unified/benchsuite" ]; then
        if [ -d "$unified/benchsuite/shell" ]; then
            while read -r pid; do
                echo "$pid" >"$unified/cgroup.procs" || die "process $pid cannot be moved out of $unified/benchsuite/shell"
            done <"$unified/benchsuite/shell/cgroup.procs"
        fi
        remove_group "$unified/benchsuite"
    fi
    echo "the groups are removed"
    exit 0
fi

# --- making -----------------------------------------------------------------------------------------------------------

if [ -z "$count" ]; then
    count=$( (nvidia-smi -L 2>/dev/null || true) | grep -c '^GPU' || true)
    [ "$count" -gt 0 ] || die "no GPU was found: say how many groups with --count N"
fi
[[ $count =~ ^[1-9][0-9]*$ ]] || die "--count needs a whole number above 0, not '$count'"

# "0-2,8" -> "0 1 2 8"
expand() {
    local part
    for part in ${1//,/ }; do seq "${part%-*}" "${part#*-}"; done
}

# The physical cores of the CPUs in list $1, in the order of NUMA nodes, each as a list of those of its threads.
find_cores() {
    local cpu node siblings available
    available=" $(expand "$1" | tr '\n' ' ')"
    mapfile -t cores < <(for cpu in $available; do
        node=$(basename "$(ls -d /sys/devices/system/cpu/cpu"$cpu"/node[0-9]* 2>/dev/null | head -n 1)" || true)
        siblings=$(cat /sys/devices/system/cpu/cpu"$cpu"/topology/thread_siblings_list 2>/dev/null || echo "$cpu")
        siblings=$(for cpu in $(expand "$siblings"); do [[ $available == *" $cpu "* ]] && echo "$cpu"; done | paste -sd,)
        echo "${node#node} ${siblings%%,*} $siblings"
    done | sort -n -k1,1 -k2,2 -u | awk '{ print $3 }')
    # With more groups than cores, threads of one core go to different groups.
    if [ ${#cores[@]} -lt "$count" ]; then mapfile -t cores < <(printf '%s\n' "${cores[@]}" | tr ',' '\n'); fi
}

# The CPUs of group $1 of $count: whole cores, equally many for each.
cpus_of() {
    local threads size each=$((${#cores[@]} / count))
    # A core with fewer usable threads must not make one group smaller.
    size=$(for ((i = 0; i < count; i++)); do
        printf '%s\n' "${cores[@]:i * each:each}" | tr ',' '\n' | wc -l
    done | sort -n | head -n 1)
    mapfile -t threads < <(printf '%s\n' "${cores[@]:$1 * each:each}" | tr ',' '\n')
    (IFS=,; echo "${threads[*]:0:size}")
}

# The memory of each group in bytes, given the folder around them.
memory_of() {
    local total limit
    total=$(awk '/^MemTotal:/ { printf "%.0f", $2 * 1024 }' /proc/meminfo)
    for limit in $(cat "$1"/memory.{max,limit_in_bytes} "${1%/*}"/memory.{max,limit_in_bytes} 2>/dev/null); do
        # Version 1 writes "no limit" as a number of 19 digits.
        if [ "$limit" != max ] && [ ${#limit} -lt 19 ] && [ "$limit" -lt "$total" ]; then total=$limit; fi
    done
    echo $((total / count / 4096 * 4096))
}

own() {
    local file
    for file in "$1" "$1"/{cgroup.procs,cgroup.threads,cgroup.kill,cgroup.freeze,tasks}; do
        if [ -e "$file" ]; then chown "$user" "$file"; fi
    done
}

# Version 2: a folder that belongs to the user, for the groups, and one in it for shells.
make_unified() {
    local controller
    mkdir -p "$unified/benchsuite"
    for controller in cpuset memory pids; do
        grep -qw $controller "$unified/cgroup.controllers" || continue
        echo "+$controller" >"$unified/cgroup.subtree_control" ||
            die "$unified gives no $controller to groups below it: it holds processes, or $controller is not delegated to it"
        echo "+$controller" >"$unified/benchsuite/cgroup.subtree_control"
    done
    mkdir -p "$unified/benchsuite/shell"
    own "$unified/benchsuite"
    own "$unified/benchsuite/shell"
}

# Move the calling shell (the nearest process above us that belongs to the user) to a group from which it can enter.
move_shell() {
    local pid=$PPID
    while [ "$pid" -gt 1 ] && [ "$(stat -c %U "/proc/$pid")" != "$user" ]; do
        pid=$(awk '/^PPid:/ { print $2 }' "/proc/$pid/status")
    done
    [ "$pid" -gt 1 ] || return 0
    echo "$pid" >"$unified/benchsuite/shell/cgroup.procs"
    echo "process $pid ($(cat "/proc/$pid/comm")) is now in $unified/benchsuite/shell, from where it may enter the groups"
}

# Check that the CPUs of folder $1 suffice.
plan_cpus() {
    local list
    list=$(cat "$1/cpuset.cpus.effective" 2>/dev/null || cat "$1/cpuset.effective_cpus" 2>/dev/null || cat "$1/cpuset.cpus")
    find_cores "$list"
    [ ${#cores[@]} -ge "$count" ] || die "$count groups need as many CPUs, and only $list may be used"
}

set_cpus() {
    local cpus
    cpus=$(cpus_of "$2")
    # Version 1: no process can enter before memory nodes are set.
    if [ -e "$1/cpuset.mem_exclusive" ]; then cat "${1%/*}/cpuset.mems" >"$1/cpuset.mems"; fi
    echo "$cpus" >"$1/cpuset.cpus"
    echo "student$2: CPUs $cpus"
}

set_memory() {
    local parent=${1%/*} bytes swap=memory.memsw.limit_in_bytes
    bytes=$(memory_of "$parent")
    if [ -e "$1/memory.limit_in_bytes" ]; then
        # The limit with swap may never be below the one without.
        if [ -e "$1/$swap" ] && [ "$(cat "$1/$swap")" -lt "$bytes" ]; then echo "$bytes" >"$1/$swap"; fi
        echo "$bytes" >"$1/memory.limit_in_bytes"
        if [ -e "$1/$swap" ]; then echo "$bytes" >"$1/$swap"; fi
    else
        echo "$bytes" >"$1/memory.max"
        if [ -e "$1/memory.swap.max" ]; then echo 0 >"$1/memory.swap.max"; fi
        if [ -e "$1/memory.oom.group" ]; then echo 1 >"$1/memory.oom.group"; fi
    fi
    echo "student$2: $bytes bytes of memory"
}

made='' cores=()
for controller in cpuset memory; do
    folder=$(place $controller) || { echo "cgroup_setup.sh: this machine has no $controller controller" >&2; continue; }
    if [ $controller = cpuset ]; then plan_cpus "${folder%/benchsuite}"; fi
    if [ "$folder" = "$unified/benchsuite" ]; then make_unified; fi
    remove_from "$folder" "$count"
    for ((index = 0; index < count; index++)); do
        mkdir -p "$folder/student$index"
        case $controller in
            cpuset) set_cpus "$folder/student$index" "$index" ;;
            memory) set_memory "$folder/student$index" "$index" ;;
        esac
        own "$folder/student$index"
    done
    made+="$folder "
done
[ -n "$made" ] || die "no groups can be made here"
case " $made" in *" $unified/benchsuite "*) if [ "$user" != root ]; then move_shell; fi ;; esac
echo "$count groups belong to $user"
