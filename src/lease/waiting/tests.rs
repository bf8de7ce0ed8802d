/*!
Tests of every decision of a wait.
*/

use super::*;
use crate::holder::Holder;

const S: Duration = Duration::from_secs(1);
const GRACE: Grace = Grace { asked: None, share: 2 };

fn at(seconds: u32) -> Instant {
    Instant::from_nanos(0) + S * seconds
}

/// A lease of 30 s that was requested at `sent` seconds.
fn grant(sent: u32) -> Grant {
    Grant { token: 7, slot: None, lease: Lease::until(at(sent), 30 * S) }
}

fn busy(position: u64) -> Busy {
    Busy { holder: Holder::Unknown, beside: 0, position: Some(position), now: 0 }
}

fn outer() -> Box<Published> {
    Box::new(Published { id: "x".to_owned(), ..Published::default() })
}

fn other_slots() -> OtherSlots {
    OtherSlots { slots: 3, holder: Holder::Unknown, now: 0 }
}

fn done() -> Done {
    Done { v: 1, period: 7, length: 60_000, ..Done::default() }
}

fn failed(kind: ErrorKind) -> Failed {
    Failed { kind, trouble: Trouble::Said("no".to_owned()) }
}

/// Returns a wait, its actions and its news after these answers at 100 s.
fn played(wait: Wait, answers: Vec<Result<Attempt, Failed>>) -> (Waiting, Vec<Next>, Vec<WaitNews>) {
    let (mut waiting, mut told) = (Waiting::new(wait, GRACE), Vec::new());
    let mut answered = |answer| waiting.answered(answer, at(100), &mut |news| told.push(news));
    let nexts = answers.into_iter().map(&mut answered).collect();
    (waiting, nexts, told)
}

#[test]
fn the_first_answer_decides_where_nobody_waits() {
    for (answer, next) in [
        (Ok(Attempt::Held(grant(100))), Next::Take(grant(100))),
        (Ok(Attempt::Busy(busy(1))), Next::Refuse(Refused::Busy(busy(1)))),
        (Ok(Attempt::Outer(outer())), Next::Refuse(Refused::Outer(outer()))),
        (Ok(Attempt::OtherSlots(other_slots())), Next::Refuse(Refused::OtherSlots(other_slots()))),
        (Ok(Attempt::Partly), Next::Again),
        (Ok(Attempt::Unprepared), Next::Again),
        (Ok(Attempt::Done(done().into())), Next::Refuse(Refused::Done(done().into()))),
        (Err(failed(ErrorKind::Unreachable)), Next::Refuse(Refused::Failed(failed(ErrorKind::Unreachable)))),
        (Err(failed(ErrorKind::Denied)), Next::Refuse(Refused::Failed(failed(ErrorKind::Denied)))),
    ] {
        let (waiting, nexts, told) = played(Wait::No, vec![answer]);
        assert_eq!((nexts, told), (vec![next], vec![]));
        assert_eq!(waiting.queue(), Queue::Pass);
    }
}

#[test]
fn a_waiter_listens_rides_out_what_may_pass_and_gives_up_what_may_not() {
    let news = |busy| WaitNews::Busy(busy);
    let trouble = WaitNews::Trouble(Trouble::Said("no".to_owned()));
    let refused = |kind| Next::Refuse(Refused::Failed(failed(kind)));
    for (answers, nexts, told) in [
        (
            vec![Ok(Attempt::Busy(busy(2))), Ok(Attempt::Busy(busy(1)))],
            vec![Next::Listen, Next::Listen],
            vec![news(busy(2)), news(busy(1))],
        ),
        // No wait changes these.
        (vec![Ok(Attempt::Outer(outer()))], vec![Next::Refuse(Refused::Outer(outer()))], vec![]),
        (
            vec![Ok(Attempt::Busy(busy(1))), Ok(Attempt::OtherSlots(other_slots()))],
            vec![Next::Listen, Next::Refuse(Refused::OtherSlots(other_slots()))],
            vec![news(busy(1))],
        ),
        (
            vec![Ok(Attempt::Busy(busy(1))), Ok(Attempt::Done(done().into()))],
            vec![Next::Listen, Next::Refuse(Refused::Done(done().into()))],
            vec![news(busy(1))],
        ),
        // First contact.
        (vec![Err(failed(ErrorKind::Unavailable))], vec![refused(ErrorKind::Unavailable)], vec![]),
        // Some of several locks are held already.
        (
            vec![Ok(Attempt::Partly), Err(failed(ErrorKind::Unavailable)), Ok(Attempt::Held(grant(100)))],
            vec![Next::Again, Next::Pause(0), Next::Take(grant(100))],
            vec![trouble.clone()],
        ),
        (
            vec![
                Ok(Attempt::Busy(busy(1))),
                Err(failed(ErrorKind::Unreachable)),
                Err(failed(ErrorKind::Unavailable)),
                Ok(Attempt::Held(grant(100))),
            ],
            vec![Next::Listen, Next::Pause(0), Next::Pause(1), Next::Take(grant(100))],
            vec![news(busy(1)), trouble.clone(), trouble.clone()],
        ),
        (
            vec![Ok(Attempt::Busy(busy(1))), Err(failed(ErrorKind::Denied))],
            vec![Next::Listen, refused(ErrorKind::Denied)],
            vec![news(busy(1))],
        ),
    ] {
        let (waiting, did, said) = played(Wait::Forever, answers);
        assert_eq!((did, said, waiting.queue()), (nexts, told, Queue::Join));
    }
}

#[test]
fn a_limited_wait_rides_out_the_first_contact_but_no_mistake() {
    use ErrorKind::{CannotCreate, Denied, Mistaken, Unavailable, Unreachable, Unusable};
    for (kind, ridden_out) in [
        (Unreachable, true),
        (Unavailable, true),
        (Mistaken, false),
        (Denied, false),
        (Unusable, false),
        (CannotCreate, false),
    ] {
        let refused = Next::Refuse(Refused::Failed(failed(kind)));
        for wait in [Wait::No, Wait::Forever] {
            assert_eq!(played(wait, vec![Err(failed(kind))]).1, vec![refused.clone()], "{wait:?} {kind:?}");
        }
        let (waiting, nexts, told) = played(Wait::Until(at(110)), vec![Err(failed(kind)), Err(failed(kind))]);
        let expected = if ridden_out { [Next::Pause(0), Next::Pause(1)] } else { [refused.clone(), refused] };
        assert_eq!((nexts, told.len()), (expected.to_vec(), if ridden_out { 2 } else { 0 }), "{kind:?}");
        assert_eq!(waiting.is_unanswered(at(109)), None);
        assert_eq!(waiting.is_unanswered(at(110)), ridden_out.then(|| failed(kind)));
        assert!(!waiting.is_over(at(110)), "there is nothing to look at");
    }
    // Once it has answered, even its name may be unknown for a while.
    let answers = vec![Err(failed(Unreachable)), Ok(Attempt::Busy(busy(1))), Err(failed(Mistaken))];
    let (waiting, nexts, _) = played(Wait::Until(at(110)), answers);
    assert_eq!(nexts, [Next::Pause(0), Next::Listen, Next::Pause(0)]);
    assert!(waiting.is_over(at(110)) && waiting.is_unanswered(at(110)).is_none());
}

#[test]
fn connecting_and_answers_are_bounded_by_the_wait() {
    let (ms, usual) = (Duration::from_millis, 5 * S);
    for (wait, connect, first, later) in [
        (Wait::Forever, usual, usual, 2 * S),
        (Wait::No, 2 * S, 2 * S, 2 * S),
        (Wait::Until(at(200)), usual, usual, 2 * S),
        (Wait::Until(at(103)), 3 * S, 3 * S, 2 * S),
        // However short it is.
        (Wait::Until(at(100) + ms(50)), S, S, S),
        (Wait::Until(at(90)), S, S, S),
    ] {
        let mut waiting = Waiting::new(wait, GRACE);
        assert_eq!(waiting.connect_within(at(100), usual), connect, "{wait:?}");
        assert_eq!(waiting.connect_within(at(100), ms(200)), ms(200), "{wait:?}");
        assert_eq!(waiting.answer_within(at(100), 30 * S, usual), first, "{wait:?}");
        // Never so long that too little is left of the lease, and never shorter than later ones.
        assert_eq!(waiting.answer_within(at(100), 3 * S, usual), S, "{wait:?}");
        assert_eq!(waiting.answer_within(at(100), 30 * S, ms(200)), later, "{wait:?}");
        waiting.answered = true;
        assert_eq!(waiting.answer_within(at(100), 30 * S, usual), later, "{wait:?}");
    }
}

#[test]
fn an_endless_wait_asks_once_more_after_a_silence_at_the_first_contact() {
    let silent = |limit| Failed { kind: ErrorKind::Unavailable, trouble: Trouble::Unanswered(limit) };
    let refused = |error: Failed| Next::Refuse(Refused::Failed(error));
    let (first, again, said) = (silent(5 * S), silent(2 * S), failed(ErrorKind::Unavailable));
    let (waiting, nexts, told) = played(Wait::Forever, vec![Err(first.clone()), Err(again.clone())]);
    assert_eq!((nexts, told), (vec![Next::Pause(0), refused(first.clone())], vec![]));
    assert_eq!(waiting.queue(), Queue::Join);
    let (mut waiting, ..) = played(Wait::Forever, vec![Err(first.clone())]);
    assert_eq!(waiting.answer_within(at(100), 30 * S, 5 * S), 2 * S);
    assert_eq!(waiting.answered(Err(said.clone()), at(100), &mut |_| {}), refused(said));
    let (_, nexts, _) = played(Wait::No, vec![Err(first.clone())]);
    assert_eq!(nexts, [refused(first)]);
}

#[test]
fn failures_in_a_row_are_counted_until_a_change_is_heard() {
    let (mut waiting, nexts, _) =
        played(Wait::Forever, vec![Ok(Attempt::Busy(busy(1))), Err(failed(ErrorKind::Unavailable))]);
    assert_eq!(nexts[1], Next::Pause(0));
    assert_eq!(waiting.listened(Some(Err(failed(ErrorKind::Unavailable)))), Next::Pause(1));
    assert_eq!(waiting.listened(Some(Ok(()))), Next::Again);
    assert_eq!(waiting.listened(Some(Err(failed(ErrorKind::Unreachable)))), Next::Pause(0));
    assert_eq!(waiting.listened(None), Next::Again);
    let denied = failed(ErrorKind::Denied);
    assert_eq!(waiting.listened(Some(Err(denied.clone()))), Next::Refuse(Refused::Failed(denied)));
}

#[test]
fn late_grants_are_asked_for_again_more_often_by_a_waiter() {
    let late = || Ok(Attempt::Held(grant(80)));
    let too_slow = Next::Refuse(Refused::Failed(Failed { kind: ErrorKind::Unavailable, trouble: Trouble::TooSlow }));
    let (_, nexts, _) = played(Wait::Forever, vec![late(), late()]);
    assert_eq!(nexts, [Next::Again, too_slow.clone()]);
    let answers = std::iter::once(Ok(Attempt::Busy(busy(1)))).chain(std::iter::repeat_with(late).take(8));
    let (_, nexts, _) = played(Wait::Forever, answers.collect());
    assert_eq!(nexts[1], Next::Again);
    assert_eq!(nexts[2..8], [0, 1, 2, 3, 4, 5].map(Next::Pause));
    assert_eq!(nexts[8], too_slow);
    // A waiter that finds it busy again begins anew.
    let first = [late(), Ok(Attempt::Busy(busy(1)))].into_iter();
    let (_, nexts, _) = played(Wait::Forever, first.chain(std::iter::repeat_with(late).take(7)).collect());
    assert_eq!(nexts[8], Next::Pause(5));
}

#[test]
fn a_wait_that_has_run_out_ends_with_what_a_last_look_sees() {
    let outage = || failed(ErrorKind::Unavailable);
    let too_slow = Failed { kind: ErrorKind::Unavailable, trouble: Trouble::TooSlow };
    let queued = || vec![Ok(Attempt::Busy(busy(2)))];
    let troubled = || vec![Ok(Attempt::Busy(busy(2))), Err(outage())];
    for (answers, seen, end) in [
        (queued(), Ok(Attempt::Held(grant(100))), Ok(grant(100))),
        (queued(), Ok(Attempt::Held(grant(80))), Err(Refused::Busy(busy(2)))),
        (queued(), Ok(Attempt::Busy(busy(1))), Err(Refused::Busy(busy(1)))),
        (queued(), Ok(Attempt::OtherSlots(other_slots())), Err(Refused::OtherSlots(other_slots()))),
        (queued(), Err(outage()), Err(Refused::Failed(outage()))),
        (troubled(), Ok(Attempt::Busy(busy(1))), Err(Refused::Busy(busy(1)))),
        (troubled(), Ok(Attempt::Held(grant(100))), Ok(grant(100))),
        (troubled(), Ok(Attempt::Held(grant(80))), Err(Refused::Failed(too_slow))),
        (troubled(), Err(outage()), Err(Refused::Failed(outage()))),
    ] {
        let (waiting, ..) = played(Wait::Until(at(100)), answers);
        assert!(waiting.is_over(at(100)) && !waiting.is_over(at(99)));
        assert_eq!(waiting.last_look(seen, at(100)), end);
    }
    let (waiting, ..) = played(Wait::Until(at(100)), vec![Ok(Attempt::Held(grant(80)))]);
    assert!(!waiting.is_over(at(200)), "nobody has said who holds it");
    let (waiting, ..) = played(Wait::Forever, queued());
    assert!(!waiting.is_over(at(u32::MAX)));
}

#[test]
fn after_each_failure_in_a_row_it_is_tried_later_up_to_a_part_of_the_lease() {
    let ms = Duration::from_millis;
    for (failures, ttl, least, most) in [
        (0, 30_000, 250, 500),
        (1, 30_000, 500, 1000),
        (2, 30_000, 1000, 2000),
        (4, 30_000, 2500, 5000),
        (100, 30_000, 2500, 5000),
        // A short lease is kept alive, whatever fails.
        (0, 1_000, 250, 500),
        (100, 1_000, 250, 500),
    ] {
        let ttl = ms(ttl);
        assert_eq!(backoff(failures, ttl, 0), ms(least), "{failures} {ttl:?}");
        assert_eq!(backoff(failures, ttl, u16::MAX), ms(most), "{failures} {ttl:?}");
    }
}

#[test]
fn what_is_ridden_out_before_the_first_answer() {
    use ErrorKind::{Contended, Denied, Full, Mistaken, Unavailable, Unreachable};
    for (kind, until, forever) in [
        (Unreachable, true, false),
        (Unavailable, true, false),
        (Full, true, true),
        (Contended, true, true),
        (Mistaken, false, false),
        (Denied, false, false),
    ] {
        let rides = [Wait::No, Wait::Until(at(1)), Wait::Forever].map(|wait| rides_out(wait, kind));
        assert_eq!(rides, [false, until, forever], "{kind:?}");
    }
}
