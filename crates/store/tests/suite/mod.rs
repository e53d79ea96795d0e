//! The conformance suite: what every store does, whatever it is made of.
//!
//! A case is an async function over any [`Store`]. [`CASES`] lists all of them by name, so that
//! each implementation runs the same list.

pub(crate) mod chance;
pub(crate) mod claiming;
pub(crate) mod committing;
pub(crate) mod fleet;
pub(crate) mod following;
pub(crate) mod input;
pub(crate) mod make;
pub(crate) mod model;
pub(crate) mod rows;
pub(crate) mod tending;
pub(crate) mod watching;

/// Runs `$run!(name, path)` for every case.
#[macro_export]
macro_rules! for_every_case {
    ($run:ident) => {
        $run! {
            committing::rows_come_back_as_they_were,
            committing::revisions_grow_by_one,
            committing::a_stale_decision_is_overtaken,
            committing::a_decision_is_overtaken_by_what_it_only_read,
            committing::what_is_made_twice_is_made_once,
            committing::a_decision_is_done_wholly_or_not_at_all,
            committing::decisions_in_one_call_are_judged_one_by_one,
            committing::what_an_overtaken_decision_believed_misleads_nobody,
            committing::the_same_request_gets_the_same_answer,
            committing::a_request_of_two_at_once_is_done_once,
            committing::removing_a_task_removes_what_hangs_on_it,
            committing::what_others_need_is_not_removed,
            committing::a_task_has_one_live_attempt,
            committing::what_is_referred_to_must_be_there,
            committing::many_at_once_lose_no_update,
            committing::two_rows_are_never_half_swapped,
            claiming::the_order_is_the_kernels,
            claiming::a_task_is_claimed_once_by_many,
            claiming::what_waits_is_not_claimed,
            claiming::a_stopped_role_is_not_claimed_for,
            claiming::what_is_declined_hides_nothing,
            claiming::roles_with_claimable_tasks_are_known,
            tending::what_is_due_is_taken_once_and_again_after_its_hold,
            tending::a_timer_is_rearmed_unless_the_row_moved_on,
            tending::beats_renew_and_never_shorten,
            tending::a_beat_touches_no_revision,
            tending::who_is_not_current_is_told,
            tending::leases_are_extended_by_our_downtime,
            tending::nodes_are_present_by_lease,
            tending::effects_are_handed_out_at_least_once,
            tending::effects_of_many_hands_are_not_handed_out_twice_at_once,
            tending::what_is_old_is_forgotten,
            tending::a_clock_that_is_set_back_shortens_nothing,
            following::events_are_read_in_order_by_cursor,
            following::events_are_filtered,
            following::foreign_and_future_cursors_are_refused,
            following::whoever_waits_for_events_is_woken,
            following::sixteen_writers_and_a_follower,
            fleet::sessions_and_sandboxes_come_back,
            fleet::a_session_has_one_live_sandbox,
            fleet::a_role_has_one_pending_start,
            fleet::workers_come_back_with_their_leases,
            fleet::roles_and_runners_come_back,
            fleet::tokens_come_back_and_no_two_that_live_share_a_name,
            fleet::workflows_results_and_diagnostics_come_back,
            watching::webhooks_and_their_letters_come_back,
            watching::a_webhooks_name_is_its_own,
            watching::letters_go_with_their_webhook,
            watching::meters_and_alerts_come_back,
            watching::rows_are_counted_by_name,
            input::oversized_fields_are_refused,
            input::what_is_not_text_is_refused,
            input::numbers_that_do_not_fit_are_refused,
            input::a_commit_that_names_a_row_twice_is_refused,
            input::too_much_at_once_is_refused,
            input::unknown_ids_are_nothing,
            input::lists_are_paged_completely,
            input::lists_are_filtered,
            input::a_page_of_another_list_is_refused,
            model::any_sequence_of_decisions_agrees_with_the_model,
        }
    };
}
