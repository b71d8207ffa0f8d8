/* Coverage marks: each says that a cell of the fault matrix was reached. A run prints how often, and with
 * --need-all a mark that was never reached is a failure. */
#ifndef TESTS_SIM_MARKS_H
#define TESTS_SIM_MARKS_H

#include <stdint.h>

/* clang-format off */
#define SIM_MARKS(X)                                                                               \
    /* the network */                                                                              \
    X(net_loss)                                                                                    \
    X(net_duplicate)                                                                               \
    X(net_reorder)                                                                                 \
    X(net_delay) X(net_replay_old) X(net_corrupt) X(net_corrupt_refused) X(net_truncate)           \
        X(net_codec) X(net_one_way) X(net_clogged) X(net_host_cut_off) X(net_partition)            \
            X(net_to_dead_host) X(net_to_paused_host) /* hosts and processes */                    \
        X(agent_crash) X(agent_crash_in_commit) X(client_crash_in_commit) X(commit_stopped_early)  \
            X(commit_stopped_late) X(host_reboot) X(host_reboot_state_lost) X(old_epoch_raised)    \
                X(pause_agent) X(pause_longer_than_ttl) X(pause_holder) X(suspend)                 \
                    X(suspend_longer_than_ttl) X(clock_fast) X(clock_slow) X(clock_wall_forward)   \
                        X(clock_wall_back) X(distrust) X(duplicate_identity) X(twin_noticed)       \
                            X(holder_crash) X(dead_holder_reaped) /* the host tier */              \
        X(shm_missing) X(shm_found_again) X(shm_full) X(record_damaged) X(lock_stuck)              \
            X(asked_locked) /* servers */                                                          \
        X(server_strangers) X(server_blind) X(server_slow) X(server_down) X(server_restart)        \
            X(server_named) X(server_counts) X(server_inferred) X(server_static)                   \
                X(server_request_queued) /* the owner answers */                                   \
        X(asked_go) X(asked_no) X(asked_gone) X(asked_granted) X(asked_undecided) X(asked_unread)  \
            X(asked_waits) X(asked_wait_granted) X(asked_wait_over) X(asked_again_kept)            \
                X(asked_again_answered) X(asked_too_late) X(asked_not_owner)                       \
                    X(brought_id_acquired) X(brought_id_refused) X(died_told)                      \
                        X(reply_state_taken) /* asking */                                          \
        X(place_owner) X(place_reading) X(place_host) X(place_process) X(owner_silent)             \
            X(undo_asked) X(undo_released) X(told_running) X(told_running_anew) X(told_release)    \
                X(renew_answered) X(renew_unanswered) X(renew_gone) X(lost_runs_on)                \
                    X(taken_again_here) X(waits_local) X(waits_remote) X(gave_up_wait)             \
                        X(release_lost) /* copies and gossip */                                    \
        X(state_taken) X(state_old_refused) X(state_fetched) X(beat_gap) X(claim_sent)             \
            X(claim_taken) X(claim_withdrawn) X(withdrawn_before_claim) X(epoch_raised_by_word)    \
                X(owner_moved) X(two_owners) X(became_copy) X(owner_told_its_epoch)                \
                    X(became_owner) X(owner_book_copied) X(peer_silent) X(peer_back)               \
                        X(peer_restarted) /* what was judged */                                    \
        X(judged_healed) X(judged_quiet) X(judged_ends) X(judged_observers) X(judged_queue)        \
            X(judged_stale) X(judged_server_full) X(judged_duplicate) X(judged_choice)
/* clang-format on */

enum sim_mark {
#define SIM_MARK_NAME(name) MARK_##name,
    SIM_MARKS(SIM_MARK_NAME)
#undef SIM_MARK_NAME
        MARK_COUNT
};

extern uint64_t sim_marks[MARK_COUNT];

#define SIM_MARK(name) ((void)sim_marks[MARK_##name]++)

#endif
