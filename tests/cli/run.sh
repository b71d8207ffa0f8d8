#!/bin/bash
# What `lease` promises to whoever calls it, against the real program: run.sh LEASE [CASE...]
#
# There is one provider, x, with one slot of this host that nobody is asked about.
. "$(dirname "$0")/words.sh"

# ---- the child --------------------------------------------------------------------------------

case_exit_codes_of_the_child()
{
    expect 0 run x -- true
    silent out
    silent err
    expect 3 run x -- sh -c 'exit 3'
    expect 137 run x -- sh -c 'kill -9 $$'
    expect 143 run x -- sh -c 'kill -TERM $$'
    gone_afterwards
}

case_command_that_cannot_run()
{
    expect 127 run x -- "$work/nonesuch"
    one_line
    expect 127 run x -- nonesuch-in-path
    one_line
    echo text >plain
    expect 126 run x -- ./plain
    one_line
    expect 126 run x -- "$work"
    one_line
    gone_afterwards
}

case_a_weak_basis_is_one_warning()
{
    expect 0 "$lease" run --provider y=static:1 y -- true
    one_line
    says err 'warning: go for y stands on host only'
    expect 69 "$lease" run --provider y=static:1 --require owner y -- true
    one_line
    expect 69 "$lease" run --else run --provider y=static:1 --require owner y -- true
}

case_stdin_and_environment()
{
    echo hello | run x -- cat >out 2>err || broken "exit $?"
    says out hello
    expect 0 run --slot 0 x -- sh -c \
        'echo "$LEASE_PROVIDER $LEASE_REACH $LEASE_DIR ${LEASE_SLOT-none}"; echo "$LEASE_ID"'
    says out "x host $LEASE_DIR 0"
    says out 'x:'
    expect 0 run x -- sh -c 'echo "slot ${LEASE_SLOT-none}, token ${LEASE_TOKEN:-none}"'
    says out 'slot none, token '
    grep -q 'token [1-9]' out || broken "no token: $(cat out)"
    expect 0 run x -- sh -c "$lease ls --provider $x --json"
    says out '"label":"sh"'
    gone_afterwards
}

case_signals_are_passed_on()
{
    local signal
    for signal in TERM INT HUP QUIT USR1 USR2 WINCH; do
        rm -f ready got
        start x -- bash -c "trap 'echo $signal >got; exit 5' $signal; : >ready
                            while :; do sleep 0.01; done" 2>err
        until_true test -e ready
        kill -$signal $!
        wait $!
        [ $? = 5 ] && [ -s got ] || broken "$signal did not arrive"
    done
    gone_afterwards
}

case_ignored_signals_stay_ignored()
{
    rm -f ready
    (trap '' HUP; exec "$lease" run --provider $x x -- sh -c \
        ': >ready; while [ ! -e end ]; do sleep 0.01; done; exit 4') 2>err &
    until_true test -e ready
    kill -HUP $!
    : >end
    wait $!
    [ $? = 4 ] || broken "HUP was not ignored"
}

case_child_that_ignores_term()
{
    rm -f ready end
    start x -- sh -c "trap '' TERM; : >ready; while [ ! -e end ]; do sleep 0.01; done; exit 6"
    until_true test -e ready
    kill -TERM $!
    lease_count_is 1 || broken "the lease went before the child"
    : >end
    wait $!
    [ $? = 6 ] || broken "the child's code is not ours"
    gone_afterwards
}

child_is_dead()
{
    ! kill -0 "$(cat pid)"
}

case_child_ends_with_us()
{
    rm -f pid
    start x -- sh -c 'echo $$ >pid.new; mv pid.new pid; exec sleep 600'
    until_true test -e pid
    kill -KILL $!
    wait $! 2>/dev/null
    until_true child_is_dead
}

case_sigchld_ignored_by_the_caller()
{
    expect 7 perl -e '$SIG{CHLD} = "IGNORE"; exec @ARGV' \
        "$lease" run --provider $x x -- sh -c 'exit 7'
}

# ---- a terminal -------------------------------------------------------------------------------

# on_terminal COMMAND: runs it on a terminal of its own; what is written to descriptor 9 is typed.
# No shell stays above the command, whatever SHELL says: of what is typed, dash would die as well.
on_terminal()
{
    rm -f keys
    mkfifo keys
    SHELL=/bin/sh with_signals script -qefc "exec $1" /dev/null <keys >typescript 2>&1 &
    terminal=$!
    exec 9>keys
}

off_terminal()
{
    exec 9>&-
    wait "$terminal"
}

# A signal that we pass on comes after all that came before it: a second interrupt is then counted.
case_interrupt_reaches_the_child_once()
{
    rm -f ready count
    cat >child.pl <<'EOF'
sub note { open my $file, '>>', $_[0] or die; print $file "$_[1]\n"; close $file }
$SIG{INT} = sub { note 'count', 'x' };
$SIG{USR1} = sub { exit 8 };
note 'ready.new', getppid;
rename 'ready.new', 'ready';
select undef, undef, undef, 0.01 while 1;
EOF
    on_terminal "$lease run --provider $x x -- perl child.pl"
    until_true test -e ready
    printf '\003' >&9
    until_true test -s count
    kill -USR1 "$(cat ready)"
    off_terminal
    [ $? = 8 ] || broken "exit is not the child's"
    [ "$(wc -l <count)" = 1 ] || broken "interrupted $(wc -l <count) times"
    gone_afterwards
}

# The child is no shell: one that is stopped within its vfork reports to nobody, with us or without.
case_stop_and_continue_as_a_job()
{
    rm -f ready stopped resumed
    cat >job.sh <<EOF
set -m
$lease run --provider $x x -- perl -e 'open F, ">ready"; select undef, undef, undef, 0.01 until -e "resumed"; exit 9'
jobs -s | grep -q Stopped && : >stopped
: >resumed
fg
echo "code \$?" >code
EOF
    on_terminal "bash job.sh"
    until_true test -e ready
    printf '\032' >&9
    until_true test -e stopped
    until_true test -e code
    off_terminal
    says code 'code 9'
    gone_afterwards
}

case_background_job_of_a_terminal()
{
    rm -f code
    cat >job.sh <<EOF
set -m
stty tostop
$lease run --provider $x x,nonesuch -- sh -c 'exit 4' &
wait \$!
echo "code \$?" >code
EOF
    on_terminal "bash job.sh"
    until_true test -e code
    off_terminal
    says code 'code 4'
    gone_afterwards
}

# ---- no lease ---------------------------------------------------------------------------------

# all_lose_at_once: eight ask together. Each is refused, always; and within a second, unless the
# machine was too busy to run them.
all_lose_at_once()
{
    local i codes contenders TIMEFORMAT=%R
    for i in 1 2 3 4 5 6 7 8; do
        { time run x -- true 2>"err$i"; echo $? >"code$i"; } 2>"took$i" &
        contenders[i]=$!
    done
    wait "${contenders[@]}"
    codes=$(cat code[1-8] | sort -u)
    [ "$codes" = 75 ] || broken "codes: $codes"
    ! grep -h . took[1-8] | grep -qv '^0'
}

case_losers_are_told_at_once()
{
    rm -f end
    start x -- sh -c 'while [ ! -e end ]; do sleep 0.01; done'
    local holder=$!
    until_true lease_count_is 1
    until_true all_lose_at_once || broken "took seconds: $(cat took[1-8])"
    cp err1 err && one_line
    expect 9 run -E 9 x -- true
    expect 75 run --else run x -- true
    : >end
    wait $holder
    gone_afterwards
}

case_waiting_gets_the_slot()
{
    rm -f end
    start x -- sh -c 'while [ ! -e end ]; do sleep 0.01; done'
    local holder=$!
    until_true lease_count_is 1
    start --wait 20 x -- sh -c 'exit 11'
    local waiter=$!
    : >end
    wait $waiter
    [ $? = 11 ] || broken "the waiter was not served"
    wait $holder
}

is_waiting()
{
    "$lease" fleet --provider $x --json | grep -q '"waiting":1'
}

case_signal_while_waiting()
{
    rm -f end
    start x -- sh -c 'while [ ! -e end ]; do sleep 0.01; done'
    local holder=$! signal number
    until_true lease_count_is 1
    for signal in TERM:143 INT:130 HUP:129; do
        start --wait 60 x -- touch served
        local waiter=$!
        until_true is_waiting
        number=${signal#*:}
        kill -"${signal%:*}" $waiter
        wait $waiter
        [ $? = "$number" ] || broken "not $number"
        until_true nobody_waits
    done
    : >end
    wait $holder
    gone_afterwards
    [ ! -e served ] || broken "one that gave up was served"
}

nobody_waits()
{
    ! is_waiting
}

case_unknown_provider()
{
    expect 69 run nobody -- touch ran
    one_line
    says err 'nobody: nobody has declared this provider'
    says err "$HOME/.config/leasehold/leasehold.conf"
    [ ! -e ran ] || broken "it ran"
    expect 0 run --else run nobody -- sh -c 'echo "$LEASE_REACH ${LEASE_ID-none}"'
    says out 'none none'
    one_line
    expect 69 "$lease" ls nobody
    expect 0 run nobody,x -- true
}

case_nested()
{
    expect 75 run x -- "$lease" run --provider $x --wait 60 x -- true
    one_line
    says err 'already runs under x:'
    expect 0 run x -- "$lease" run --provider $x --nested share x -- \
        sh -c 'echo "shares $LEASE_ID"'
    says out 'shares x:'
    expect 75 run x -- "$lease" run --provider $x --nested new x -- true
    expect 0 run --provider y=static:1 x -- \
        "$lease" run --provider y=static:1 y -- sh -c 'echo "$LEASE_PROVIDER"'
    says out y
    gone_afterwards
}

# A name of a lease that is none, or has ended, is nobody's.
case_nested_in_nothing()
{
    expect 0 env LEASE_ID=x:aaaaaaaaaaaaaaaaaaaaaaaaaa "$lease" run --provider $x x -- true
    expect 0 env LEASE_ID=x:nonsense "$lease" run --provider $x x -- true
    silent err
    start x -- sleep 600
    until_true lease_count_is 1
    local parent
    parent=$(own ls --json | grep -o 'x:[a-z2-7]\{26\}' | head -n 1)
    expect 75 env LEASE_ID=x:aaaaaaaaaaaaaaaaaaaaaaaaaa "$lease" run --nested share \
        --provider $x x -- echo RAN
    silent out
    expect 0 env LEASE_ID="$parent" "$lease" run --nested share --provider $x,url=http://there x -- \
        sh -c 'echo "$LEASE_ID $LEASE_PROVIDER $LEASE_URL $LEASE_REACH ${LEASE_TOKEN:?}"'
    says out "$parent x http://there host "
    expect 75 env LEASE_ID="$parent" "$lease" run --provider $x --wait 60 x -- true
    says err "already runs under $parent"
    kill -TERM $!
    wait $! 2>/dev/null
    gone_afterwards
    expect 0 env LEASE_ID="$parent" "$lease" run --provider $x x -- true
    expect 0 env LEASE_ID="$parent" "$lease" run --nested share --provider $x x -- \
        sh -c 'echo "$LEASE_ID"'
    ! grep -q "$parent" out || broken "shares a lease that has ended"
    gone_afterwards
}

case_usage()
{
    local line
    while read -r line; do
        # shellcheck disable=SC2086
        expect 64 "$lease" $line
        one_line
        silent out
    done <<'EOF'

nonsense
run
run x
run x true
run x --
run --ttl 0 x -- true
run --nonsense x -- true
run -E 256 x -- true
run --units 2 --slot 0 x -- true
run x, -- true
run x/y -- true
run --provider x x -- true
run --provider x=gopher://h x -- true
run --provider x=static:1,key-file=/nonexistent x -- true
run --config /nonexistent x -- true
acquire
acquire x y
verify nonsense
release
ls a b
fleet a
log --since yesterday
EOF
    for bad in --peer '--peer m5' '--peer tcp://'; do
        expect 64 "$lease" fleet $bad
        one_line
        says err 'tcp://HOST'
    done
    expect 64 "$lease" forget
    expect 64 "$lease" forget 'no name'
    one_line
    for later in keygen 'trust m5 KEY' 'fleet --key FILE'; do
        expect 69 "$lease" $later
        one_line
        says err 'no keys yet'
    done
}

case_help()
{
    local command
    expect 0 "$lease" --help
    says out 'lease run'
    expect 0 "$lease" --version
    says out 'lease 0.'
    for command in run acquire verify renew release ls fleet status watch log doctor init peers \
        forget keygen trust; do
        expect 0 "$lease" $command --help
        says out 'exit codes:'
        silent err
    done
}

# ---- step by step -----------------------------------------------------------------------------

own()
{
    local command=$1
    shift
    "$lease" "$command" --provider $x "$@"
}

case_acquire_to_release()
{
    local id
    expect 0 own acquire --label "it's" x
    id=$(cat out)
    lease_count_is 1 || broken "no lease"
    expect 75 own acquire x
    one_line
    expect 0 own verify --json "$id"
    says out '"verdict":"go"'
    says out '"provider":{'
    expect 0 own ls
    says out "$id"
    says out "it's"
    expect 0 own renew "$id"
    expect 0 own release "$id"
    expect 0 own release "$id"
    expect 74 own renew "$id"
    one_line
    expect 74 own verify "$id"
    expect 74 own verify --json "$id"
    says out '"verdict":"no"'
    gone_afterwards
}

case_export_for_a_shell()
{
    expect 0 own acquire --export x
    eval "$(cat out)"
    expect 0 own release "$LEASE_ID"
    [ "$LEASE_PROVIDER" = x ] || broken "provider $LEASE_PROVIDER"
    sh -c 'test -n "$LEASE_ID"' || broken "not exported"
    unset LEASE_ID LEASE_PROVIDER LEASE_URL LEASE_TOKEN LEASE_REACH LEASE_SLOT
    gone_afterwards
}

case_pid_wants_an_agent()
{
    expect 69 own acquire --pid $$ x
    one_line
    says err 'lease-agent'
}

case_configuration_and_pools()
{
    mkdir -p "$HOME/.config/leasehold"
    cat >"$HOME/.config/leasehold/leasehold.conf" <<'EOF'
provider a = static:1
provider b = static:1
pool both = a,b
colour = blue
EOF
    expect 0 "$lease" run both -- sh -c \
        "$lease run --nested new both -- sh -c 'echo \$LEASE_PROVIDER'"
    says out b
    says err "leasehold.conf:4: unknown key 'colour'"
    expect 0 "$lease" run --provider a=static:2 a -- "$lease" run --provider a=static:2 \
        --nested new a -- true
    echo ' x' >"$HOME/.config/leasehold/leasehold.conf"
    expect 64 "$lease" fleet
    one_line
    says err 'leasehold.conf:1: indent by four spaces'
    expect 0 "$lease" run --else run a -- sh -c 'echo "$LEASE_REACH"'
    says out none
}

# ---- looking ----------------------------------------------------------------------------------

case_watch()
{
    local id
    "$lease" watch --provider $x x >watched 2>err &
    local watcher=$!
    until_true grep -q '"event":"snapshot"' watched
    id=$(own acquire x)
    until_true grep -q "\"event\":\"change\".*$id" watched
    own release "$id"
    kill $watcher
    wait $watcher 2>/dev/null
    own watch | head -n 1 >out
    [ "${PIPESTATUS[0]}" = 0 ] || broken "a reader that leaves is an error"
    says out '"schema":1'
}

case_status_log_doctor()
{
    expect 0 own status
    says out "$LEASE_DIR"
    expect 0 own status --json
    says out "\"directory\":\"$LEASE_DIR\""
    expect 0 run x -- true
    expect 0 own log x
    says out released
    expect 0 own log --json --since 1h x
    says out '"event":"go"'
    expect 0 own log --since 2030-01-31T12:00 x
    says out 'nothing of late'
    expect 0 own doctor
    expect 1 "$lease" doctor
    says out 'WRONG  providers'
    expect 1 own doctor --json --provider z=http://127.0.0.1:1,key-file="$HOME/key"
    says out '"wrong":2'
    chmod 777 "$LEASE_DIR"
    expect 1 own doctor
    says out 'WRONG  directory'
}

case_init_never_overwrites()
{
    local file=$HOME/.config/leasehold/leasehold.conf
    expect 0 "$lease" init --print
    says out '# '
    [ ! -e "$file" ] || broken "--print wrote"
    expect 0 "$lease" init
    [ "$(stat -c %a "$file")" = 600 ] || broken "mode $(stat -c %a "$file")"
    cp "$file" before
    expect 0 "$lease" status
    silent err
    expect 69 "$lease" init
    one_line
    cmp -s "$file" before || broken "changed"
    expect 0 "$lease" init --config new.conf
    [ -e new.conf ] || broken "--config not written"
}

case_without_a_directory()
{
    expect 0 "$lease" run --dir "$work/no/such/folder" --provider $x x -- \
        sh -c 'echo "$LEASE_REACH ${LEASE_DIR-none}"'
    one_line
    says err 'warning: '
    says out 'process none'
}

case_lost_lease()
{
    rm -f ready end
    start --on-lost term x -- sh -c ': >ready; exec sleep 600' 2>err
    until_true test -e ready
    own release --force "$(own ls --json | grep -o 'x:[a-z2-7]\{26\}' | head -n 1)"
    wait $!
    [ $? = 124 ] || broken "term: exit is not 124"
    rm -f ready
    start --on-lost kill x -- sh -c 'trap "" TERM; : >ready; while :; do sleep 0.01; done' 2>err
    until_true test -e ready
    own release --force "$(own ls --json | grep -o 'x:[a-z2-7]\{26\}' | head -n 1)"
    wait $!
    [ $? = 124 ] || broken "kill: exit is not 124"
    rm -f ready
    start x -- sh -c ': >ready; while [ ! -e end ]; do sleep 0.01; done; exit 12' 2>err
    until_true test -e ready
    own release --force "$(own ls --json | grep -o 'x:[a-z2-7]\{26\}' | head -n 1)"
    until_true grep -q 'warning: lost' err
    until_true lease_count_is 1
    : >end
    wait $!
    [ $? = 12 ] || broken "warn: the child was ended"
    gone_afterwards
}

# ---- with an agent ----------------------------------------------------------------------------

start_agent()
{
    "$(dirname "$lease")/lease-agent" --provider $x 2>agent.err &
    agent=$!
    until_true agent_speaks
}

agent_speaks()
{
    "$lease" status --json | grep -q '"alive":true,"stopped":false'
}

end_agent()
{
    kill -TERM "$agent"
    wait "$agent" || broken "the agent ended with $?: $(cat agent.err)"
}

case_pid_ties_a_lease_to_a_process()
{
    start_agent
    "$lease" ls x >out 2>err || broken "a provider of the agent is unknown: $(cat err)"
    sleep 600 &
    local holder=$!
    expect 0 "$lease" acquire --pid $holder x
    expect 0 "$lease" verify "$(cat out)"
    silent err
    lease_count_is 1 || broken "no lease"
    kill $holder
    wait $holder 2>/dev/null
    gone_afterwards
    end_agent
}

case_doctor_names_a_stopped_agent()
{
    start_agent
    expect 0 "$lease" doctor
    kill -STOP "$agent"
    expect 1 "$lease" doctor
    says out "mend: kill -CONT $agent"
    expect 69 "$lease" acquire --pid $$ x
    kill -CONT "$agent"
    until_true agent_speaks
    end_agent
}

# A process that is stopped while it holds the lock of the book of x; its id in $stopped
stop_in_the_lock()
{
    perl -MFcntl=:flock -e 'open F, "+<", $ARGV[0] or die; flock F, LOCK_EX; open G, ">", "locked";
        close G; kill STOP => $$; sleep 600' "$LEASE_DIR/x.v1.book" &
    stopped=$!
    until_true test -e locked
    until_true grep -q '^State:.T' /proc/$stopped/status
}

end_in_the_lock()
{
    kill -KILL $stopped
    wait $stopped 2>/dev/null
    rm -f locked
}

case_a_locked_book_names_its_process()
{
    local id command stopped
    expect 0 own acquire --ttl 60 x
    id=$(cat out)
    stop_in_the_lock
    for command in renew release verify; do
        expect 75 own $command "$id"
        one_line
        says err "book locked by pid $stopped, continue or end that process"
    done
    expect 75 run --wait 0.5 x -- true
    one_line
    says err "book locked by pid $stopped, continue or end that process"
    expect 1 own doctor
    says out "mend: kill -CONT $stopped"
    end_in_the_lock
    expect 0 own release "$id"
    expect 0 own doctor
}

has_tried_often()
{
    cat /proc/"$1"/task/*/status | grep -q '^voluntary_ctxt_switches:.[0-9]\{3\}'
}

# Under a lock that is not let go a lease that is over is told of, and ends with its holder
case_a_lease_that_cannot_be_given_back_is_told()
{
    local holder stopped
    "$lease" run --provider $x x -- sh -c 'touch runs; until test -e on; do sleep 0.02; done; exit 3' 2>err &
    holder=$!
    until_true test -e runs
    stop_in_the_lock
    touch on
    wait $holder
    [ $? = 3 ] || broken "not the command's own code"
    one_line
    says err 'warning: not given back yet: x:'
    says err "book locked by pid $stopped"
    end_in_the_lock
    expect 0 run --wait 20 x -- true # it drains first: its work might still run
}

# Whoever waits for a slot gets it when the lock is let go, and meanwhile any other that gets free.
case_a_wait_outlasts_a_lock()
{
    local stopped waiter
    expect 0 run x -- true
    stop_in_the_lock
    expect 0 "$lease" run --provider $x --provider y=static:1,own=yes --wait 20 x,y -- true
    silent err
    "$lease" run --provider $x --wait 20 x -- true 2>err &
    waiter=$!
    until_true has_tried_often $waiter
    end_in_the_lock
    wait $waiter || broken "a wait ended with $?: $(cat err)"
}

# A book that is spoilt under a living holder: how, and what is said of it
spoil_under_a_holder()
{
    rm -f holder.err
    start x -- sleep 600 2>holder.err
    local holder=$!
    until_true lease_count_is 1
    eval "$1"
    until_true grep -q "warning: the book of x $2" holder.err
    [ "$(wc -l <holder.err)" = 1 ] || broken "not one line: $(cat holder.err)"
    until_true lease_count_is 1
    expect 75 run x -- true
    kill -TERM $holder
    wait $holder 2>/dev/null
    gone_afterwards
    expect 0 run x -- true
    silent err
}

case_a_spoilt_book_is_told_by_its_holder()
{
    spoil_under_a_holder ': >"$LEASE_DIR/x.v1.book"' 'was cut short'
    spoil_under_a_holder 'truncate -s 100 "$LEASE_DIR/x.v1.book"' 'was cut short'
    spoil_under_a_holder 'rm "$LEASE_DIR/x.v1.book"' 'was removed'
    spoil_under_a_holder 'rm -r "$LEASE_DIR"' 'was removed'
}

# Its lease has another name then, and waiting for it would still be waiting for oneself.
case_nested_in_a_lease_that_was_taken_again()
{
    start x -- sh -c 'until [ -e go ]; do sleep 0.01; done
        "$1" run --provider "$2" --nested share x -- sh -c "echo \$LEASE_ID" >shared
        "$1" run --provider "$2" --wait 60 x -- true' - "$lease" $x 2>err
    until_true lease_count_is 1
    rm "$LEASE_DIR/x.v1.book"
    until_true grep -q 'was removed' err
    until_true lease_count_is 1
    own ls --json | grep -o 'x:[a-z2-7]\{26\}' | head -n 1 >wanted
    : >go
    wait $!
    [ $? = 75 ] || broken "it waited for itself"
    says err 'already runs under'
    cmp -s shared wanted || broken "shares $(cat shared) instead of $(cat wanted)"
}

# Whatever was left of it: nobody goes alone for it.
case_a_book_cut_short_is_told_by_whoever_finds_it()
{
    local size
    expect 0 run x -- true
    for size in 0 100 5000; do
        truncate -s $size "$LEASE_DIR/x.v1.book"
        expect 0 run x -- sh -c 'echo $LEASE_REACH'
        says out host
        one_line
        says err 'warning: somebody cut the book of x short: a new one is begun'
        expect 0 run x -- true
        silent err
    done
}

# To end a watch takes the kernel many milliseconds, which a short command must not wait for.
case_a_book_is_not_watched_for_a_short_command()
{
    [ -e /proc/self/fdinfo ] || return 0
    expect 0 run x -- sh -c 'until cat /proc/$PPID/fdinfo/* 2>/dev/null | grep -q "^inotify wd"; do :; done
        exec "$@"' - "$lease" ls --provider $x --json
    grep -Eq '"age_secs":(0\.[2-9]|[1-9])' out || broken "watched at once: $(grep -o '"age_secs":[0-9.]*' out)"
}

case_the_agent_tells_of_a_removed_book()
{
    start_agent
    rm "$LEASE_DIR/x.v1.book"
    until_true grep -q 'lease-agent: the book of x was removed' agent.err
    end_agent
}

case_a_long_time_to_live_is_warned_of()
{
    expect 0 own acquire --ttl 300 x
    one_line
    says err 'held for 60 s at most'
    expect 0 own release "$(cat out)"
    expect 0 own acquire --ttl 60 x
    silent err
}

case_escapes_reach_no_terminal()
{
    export LEASE_DIR=$work/$(printf 'dir-\033[31m')
    mkdir -m 700 "$LEASE_DIR"
    expect 0 own status
    ! grep -q "$(printf '\033')" out || broken "status prints an escape"
    start_agent
    ! grep -q "$(printf '\033')" agent.err || broken "the agent prints an escape"
    end_agent
}

case_a_program_that_cannot_be_run()
{
    expect 75 "$lease" run --provider p=exec:/nonexistent p -- true
    one_line
    says err 'the program tells nothing: /nonexistent: '
}

# What stands in the book's place is named, with the mend.
case_something_else_in_the_books_place()
{
    local book=$LEASE_DIR/x.v1.book
    ln -s /etc/passwd "$book"
    expect 0 run x -- true
    one_line
    says err 'x.v1.book is a symbolic link: remove it'
    expect 1 own doctor
    says out 'mend: remove it'
    rm "$book" && mkfifo "$book"
    expect 0 run x -- true
    says err 'x.v1.book is no regular file: remove it'
    rm "$book" && mkdir "$book"
    expect 0 run x -- true
    says err 'x.v1.book is a directory: remove it'
}

# What is printed where nobody listens must not land in the file that is opened next: a book.
case_closed_streams_leave_the_book_alone()
{
    local book=$LEASE_DIR/x.v1.book size
    expect 0 own acquire --ttl 60 x
    size=$(stat -c %s "$book")
    bash -c '"$1" acquire --provider "$2" x <&- >&- 2>&-' - "$lease" "$x"
    bash -c '"$1" verify x:gasg5wxjecdkwaaaaaaaaaaaae <&- >&- 2>&-' - "$lease"
    bash -c '"$1" acquire --provider "$2" --units 9 x <&- 2>&-' - "$lease" "$x" >/dev/null
    [ "$(stat -c %s "$book")" = "$size" ] || broken "the book grew"
    lease_count_is 1 || broken "the book is not what it was"
    expect 75 own acquire x
}

case_a_stopped_child_is_ended_too()
{
    start x -- sh -c 'kill -STOP $$'
    until_true lease_count_is 1
    kill -TERM $!
    wait $! 2>/dev/null
    [ $? = 143 ] || broken "not ended by the signal"
    gone_afterwards
}

case_a_full_output_is_told()
{
    "$lease" watch --provider $x >/dev/full 2>err
    [ $? = 70 ] || broken "watch ended well"
    says err 'cannot be written'
    "$lease" acquire --provider $x x >/dev/full 2>err
    [ $? = 70 ] || broken "acquire ended well"
    one_line
    says err 'given back'
    lease_count_is 0 || broken "an id that nobody read holds the slot"
    "$lease" acquire --export --provider $x x 2>err | exec true
    gone_afterwards
}

case_doctor_finds_a_spoilt_book()
{
    mkdir -p -m 700 "$LEASE_DIR"
    printf garbage >"$LEASE_DIR/x.v1.book"
    expect 1 "$lease" doctor --provider $x
    says out 'x.v1.book'
    says out 'remove that file'
}

case_agent_says_why_it_cannot_speak()
{
    mkdir -p -m 700 "$LEASE_DIR/agent.lock"
    "${lease}-agent" --provider $x >out 2>err
    [ $? = 70 ] || broken "another code"
    says err 'agent.lock'
    ! grep -q 'pid 0' err || broken "an agent that is not there is blamed"
}

all_cases "$@"
