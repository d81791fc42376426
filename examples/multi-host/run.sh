#!/usr/bin/env bash
# Two hosts on one Postgres, their clocks minutes apart; one is cut off in the middle of its work and comes back.
#
# Each host is a network namespace, and so is the database's. It takes root, iproute2, faketime and the server's
# binaries (Debian: apt-get install iproute2 faketime postgresql), and leaves nothing behind. MULTI_HOST_PROGRAM names
# the program that was built; without it, it is built here. Exits with 0 when everything went as the README says.
set -euo pipefail
cd "$(dirname "$0")"

lease=4      # seconds, as in src/main.rs
heartbeat=1  # likewise

missing() {
    echo "multi-host: needs $1" >&2
    exit 2
}
[ "$(id -u)" = 0 ] || missing "root, to make network namespaces"
command -v ip >/dev/null || missing "the program ip: apt-get install iproute2"
command -v faketime >/dev/null || missing "the program faketime: apt-get install faketime"
server=$({ compgen -G '/usr/lib/postgresql/*/bin' || pg_config --bindir; } 2>/dev/null | sort -V | tail -n 1)
[ -x "$server/initdb" ] || missing "the binaries of a Postgres server: apt-get install postgresql"

program=${MULTI_HOST_PROGRAM:-}
if [ -z "$program" ]; then
    cargo build --quiet -p leasehold-multi-host
    program=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/debug/multi-host
fi

work=$(mktemp -d /tmp/leasehold-hosts-XXXXXX)
database=lh-$$-db
hosts=(lh-$$-a lh-$$-b)
children=()
as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }

clean_up() {
    for child in "${children[@]}"; do kill "$child" 2>/dev/null || true; done
    # What they started, behind a program that sets clocks.
    for space in "${hosts[@]}"; do ip netns pids "$space" 2>/dev/null | xargs --no-run-if-empty kill 2>/dev/null || true; done
    [ ! -f "$work/data/postmaster.pid" ] || as_nobody "$server/pg_ctl" -D "$work/data" -m immediate -w stop >/dev/null 2>&1 || true
    for space in "$database" "${hosts[@]}"; do ip netns delete "$space" 2>/dev/null || true; done
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 1' PIPE INT TERM HUP

# The network: the database in the middle, a cable to each host.
ip netns add "$database" 2>"$work/error" || missing "the right to make network namespaces: $(cat "$work/error")"
ip -n "$database" link set lo up
for number in 0 1; do
    host=${hosts[$number]}
    ip netns add "$host"
    ip -n "$database" link add "cable$number" type veth peer name cable netns "$host"
    ip -n "$database" address add "10.77.$number.1/30" dev "cable$number"
    ip -n "$database" link set "cable$number" up
    ip -n "$host" address add "10.77.$number.2/30" dev cable
    ip -n "$host" link set cable up
    ip -n "$host" link set lo up
done

# The database, with the right time. Its socket is in a folder, which every namespace of this machine sees.
chmod 711 "$work" && mkdir "$work/data" && chown -R 65534:65534 "$work"
as_nobody "$server/initdb" -D "$work/data" -U postgres --auth=trust --encoding=UTF8 --locale=C --no-sync >"$work/initdb" 2>&1
echo 'host all all 10.77.0.0/16 trust' >>"$work/data/pg_hba.conf"
cat >>"$work/data/postgresql.conf" <<CONFIGURATION
listen_addresses = '10.77.0.1,10.77.1.1'
unix_socket_directories = '$work'
fsync = off
CONFIGURATION
ip netns exec "$database" setpriv --reuid=65534 --regid=65534 --clear-groups \
    "$server/pg_ctl" -D "$work/data" -l "$work/log" -w start >/dev/null || { cat "$work/log" >&2; exit 1; }
here="postgres://postgres@/postgres?host=$work"

# On a host: its address of the database, and a clock that is wrong. Only the time of day is: a monotonic clock that jumps
# would be a broken machine. A host that hears nothing for a few seconds gives its connections up.
on_host() {
    local number=$1 skew=$2
    shift 2
    LEASEHOLD_STORE="postgres://postgres@10.77.$number.1/postgres?tcp_user_timeout=3000&connect_timeout=2" \
        ip netns exec "${hosts[$number]}" faketime --exclude-monotonic -f "$skew" "$program" "$@"
}
wait_for() {
    local file=$1 text=$2
    for _ in $(seq 300); do
        grep -q "$text" "$file" 2>/dev/null && return
        sleep 0.1
    done
    echo "multi-host: \"$text\" does not come; the hosts said:" >&2
    cat "$work"/*.out >&2
    exit 1
}

workflow=$(LEASEHOLD_STORE=$here "$program" start)
ahead=$(on_host 0 +7m clock) behind=$(on_host 1 -5m clock)
echo "host a is $ahead s ahead of the database, host b $((-behind)) s behind; a lease lasts $lease s"
[ "$ahead" -ge 410 ] && [ "$behind" -le -290 ] || { echo "multi-host: the hosts' clocks are not wrong" >&2; exit 1; }
on_host 0 +7m worker a "$workflow" >"$work/a.out" 2>&1 & children+=($!)
on_host 0 +7m holder a >"$work/holder.out" 2>&1 & holder=$! && children+=($!)
wait_for "$work/a.out" 'began long'
wait_for "$work/holder.out" 'holds held'
on_host 1 -5m worker b "$workflow" >"$work/b.out" 2>&1 & children+=($!)

# Host b is there, and takes nothing of what host a holds, for longer than a lease.
sleep $((lease + 1))
! grep -q began "$work/b.out" || { echo "multi-host: host b took an op whose lease was alive" >&2; exit 1; }
echo "host a is cut off"
cut_at=$(date +%s%6N)
ip -n "${hosts[0]}" link set cable down
wait_for "$work/a.out" 'told to stop long'
LEASEHOLD_STORE=$here "$program" wait "$workflow" >"$work/ledger"
echo "host b has finished the work; host a is back"
ip -n "${hosts[0]}" link set cable up
refused=0
wait "$holder" || refused=$?
wait_for "$work/a.out" 'done;'
wait_for "$work/b.out" 'done;'
sed 's/^/  /' "$work/a.out" "$work/holder.out" "$work/b.out"
echo "the ledger, by the database's clock:"
sed 's/^/  /' "$work/ledger"

fail() {
    echo "multi-host: $1" >&2
    exit 1
}
[ "$refused" = 0 ] || fail "a verb of the lost lease was not refused"
grep -q '0 ops succeeded, 1 leases lost' "$work/a.out" || fail "host a did not lose exactly one lease"
grep -q '3 ops succeeded, 0 leases lost' "$work/b.out" || fail "host b did not finish everything"
grep -q '^workflow succeeded' "$work/ledger" || fail "the workflow did not succeed"
for op in long held; do
    grep -q "^attempt $op 1 .*-a abandoned " "$work/ledger" || fail "the first attempt of $op was not host a's"
    grep -q "^attempt $op 2 worker-b succeeded " "$work/ledger" || fail "the second attempt of $op was not host b's"
    # Taken over once the lease had run out: not before, and not for any slower reason (this machine may be a busy one).
    over=$(awk -v op="$op" '$2 == op && $3 == 1 { print $7 }' "$work/ledger")
    after=$(((over - cut_at) / 1000))
    echo "$op was taken over $after ms after the cut"
    [ "$after" -ge $(((lease - heartbeat) * 1000 - 500)) ] || fail "$op was taken over too early"
    [ "$after" -le $(((lease + 10) * 1000)) ] || fail "$op was taken over too late"
done
echo "as it must be"
