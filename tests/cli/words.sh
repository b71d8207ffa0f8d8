# What the tests of the command line share; sourced with the path of the lease program as first argument.
#
# Every case has a runtime directory, a home and a folder of its own. Nothing sleeps to wait for something:
# `until_true` looks again and again.
set -u

lease=$(realpath "${1:?path of the lease program}")
[ -x "$lease" ] || { echo "$lease is no program"; exit 1; }
shift
x=x=static:1,own=yes
failures=0
case_name=
work=$(mktemp -d /tmp/lease-cli-XXXXXX)
# What is cut short leaves nothing running: a lease run that is killed takes its child along.
trap 'kill -KILL $(jobs -p) 2>/dev/null; rm -rf "$work"' EXIT
unset "${!LEASE_@}"

# ---- vocabulary -------------------------------------------------------------------------------

begin()
{
    case_name=$1
    export HOME=$work/home-$1 LEASE_DIR=$work/dir-$1 XDG_CONFIG_HOME=
    mkdir -p "$HOME" "$work/$1" && mkdir -m 700 "$LEASE_DIR" && cd "$work/$1" || exit 1
}

broken()
{
    echo "FAILED $case_name: $*"
    failures=$((failures + 1))
}

# expect CODE COMMAND...: stdout and stderr go to the files out and err
expect()
{
    local want=$1 got
    shift
    "$@" >out 2>err
    got=$?
    [ "$got" = "$want" ] || broken "exit $got instead of $want: $* ($(head -c 300 err))"
}

# says FILE TEXT: the file holds the text
says()
{
    grep -qF -- "$2" "$1" || broken "no '$2' in $1: $(head -c 300 "$1")"
}

silent()
{
    [ ! -s "$1" ] || broken "$1 is not empty: $(head -c 300 "$1")"
}

# Our own failures are one line that begins with our name.
one_line()
{
    [ "$(wc -l <err)" = 1 ] && grep -q '^lease: [^A-Z]' err || broken "not one line: $(cat err)"
}

until_true()
{
    local end=$((SECONDS + 20))
    until "$@" 2>/dev/null; do
        [ $SECONDS -lt $end ] || { broken "in 20 s never true: $*"; return 1; }
        sleep 0.01
    done
}

run()
{
    "$lease" run --provider $x "$@"
}

# A shell starts what runs in the background with INT and QUIT ignored, and whoever runs us may
# ignore more (nohup does), which our children would inherit: taken back here.
with_signals()
{
    exec perl -e '@SIG{qw(INT QUIT HUP TERM USR1 USR2 WINCH PIPE CHLD CONT TSTP TTIN TTOU)} =
                      ("DEFAULT") x 13; exec @ARGV or die' "$@"
}

# The same in the background, with its process id in $!
start()
{
    with_signals "$lease" run --provider $x "$@" &
}

leases()
{
    "$lease" ls --provider $x --json | grep -o '"id":"[^"]*"' | wc -l
}

lease_count_is()
{
    [ "$(leases)" = "$1" ]
}

gone_afterwards()
{
    until_true lease_count_is 0
}

# ---- all of it --------------------------------------------------------------------------------

# all_cases [CASE...]: those, or every one there is; fails where one did
all_cases()
{
    local each before
    [ $# -gt 0 ] || set -- $(compgen -A function case_)
    for each in "$@"; do
        before=$failures
        begin "${each#case_}"
        "$each"
        [ $failures != $before ] || echo "ok ${each#case_}"
    done
    [ $failures = 0 ]
}
