/*!
The events of a simulated game, and the strategies that generate games.
*/

use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use crate::cli::OnLost;
use crate::lease::timing::Grace;

/// The fate of one renewal; times are in thousandths of the lease.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    /// It is executed after the first time, and the answer takes the second.
    Answered(u32, u32),
    /// It is executed after this time, and the answer is lost.
    AnswerLost(u32),
    /// It does not arrive.
    Lost,
    /// The connection breaks after this time.
    Broken(u32),
}

/// Other events.
#[derive(Clone, Copy, Debug)]
pub(super) enum Happening {
    FreezeDlock,
    /// dlock is frozen when it has the answer to its next renewal and has not passed it on.
    FreezeDlockWithNews,
    ThawDlock,
    FreezeGuard,
    ThawGuard,
    KillDlock,
    KillGuard,
    /// The lock is deleted at the server.
    Delete,
    /// dlock is signalled, perhaps along with its group.
    Signal {
        group: bool,
    },
    /// The server grants longer leases from now on.
    Generous,
    /// The command ends on its own.
    Exit,
}

/// A game before it is played.
#[derive(Clone, Debug)]
pub(super) struct Script {
    /// The lease that the server grants, whatever was asked for.
    pub ttl: Duration,
    pub grace: Grace,
    /// Number of renewals in one lease.
    pub renewals_per_lease: u32,
    pub on_lost: OnLost,
    /// The arrival of the grant, in thousandths of the lease.
    pub granted_after: u32,
    /// The fates of the first renewals, in order; `afterwards` is that of all others.
    pub fates: Vec<Fate>,
    pub afterwards: Fate,
    /// Other events, each this many thousandths of the lease after the one before it.
    pub happenings: Vec<(u32, Happening)>,
    /// The lateness of the processes, in turn, in milliseconds.
    pub lateness: Vec<u64>,
    /// The time that the command takes to end after SIGTERM, in thousandths of the lease; `None` if it ignores SIGTERM.
    pub ends_on_term: Option<u32>,
}

/// Times: mostly a moment, sometimes longer than any lease.
fn time() -> impl Strategy<Value = u32> {
    prop_oneof![3 => 0..20_u32, 2 => 0..400_u32, 1 => 0..2500_u32]
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        4 => (time(), time()).prop_map(|(there, back)| Fate::Answered(there, back)),
        1 => time().prop_map(Fate::AnswerLost),
        1 => Just(Fate::Lost),
        1 => time().prop_map(Fate::Broken),
    ]
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => select(vec![Happening::FreezeDlock, Happening::FreezeDlockWithNews, Happening::FreezeGuard]),
        4 => select(vec![Happening::ThawDlock, Happening::ThawGuard]),
        2 => any::<bool>().prop_map(|group| Happening::Signal { group }),
        1 => select(vec![Happening::KillDlock, Happening::KillGuard, Happening::Delete, Happening::Exit]),
        1 => Just(Happening::Generous),
    ]
}

fn happenings() -> impl Strategy<Value = Vec<(u32, Happening)>> {
    let any = || vec((time(), happening()), 0..12);
    // Freezes or thaws one process while the other stops the command; this is too rare at random.
    let crossing = (0..300_u32, 300..1000_u32, 0..200_u32, any()).prop_map(|(first, second, third, rest)| {
        let crossing =
            [(first, Happening::FreezeDlockWithNews), (second, Happening::FreezeGuard), (third, Happening::ThawDlock)];
        crossing.into_iter().chain(rest).collect()
    });
    prop_oneof![4 => any(), 1 => crossing]
}

/// Scripts in which anything may happen.
pub(super) fn script() -> impl Strategy<Value = Script> {
    let ttl = prop_oneof![Just(1000), 1000..5000_u64, 1000..100_000_u64].prop_map(Duration::from_millis);
    let asked = option::of((0..20_000_u64).prop_map(Duration::from_millis));
    let grace = (asked, select(vec![2, 4])).prop_map(|(asked, share)| Grace { asked, share });
    let on_lost = prop_oneof![4 => Just(OnLost::Stop), 1 => Just(OnLost::Kill)];
    let kind = (ttl, grace, select(vec![3, 3, 6]), on_lost, prop_oneof![0..50_u32, 0..500_u32]);
    let network = (vec(fate(), 0..12), fate());
    let around = (happenings(), vec(0..=20_u64, 1..8), option::of(time()));
    (kind, network, around).prop_map(
        |((ttl, grace, renewals_per_lease, on_lost, granted_after), (fates, afterwards), around)| {
            let (happenings, lateness, ends_on_term) = around;
            Script {
                ttl,
                grace,
                renewals_per_lease,
                on_lost,
                granted_after,
                fates,
                afterwards,
                happenings,
                lateness,
                ends_on_term,
            }
        },
    )
}

/// Scripts in which at least every second renewal is answered in time.
pub(super) fn friendly() -> impl Strategy<Value = Script> {
    let moment = || 0..10_u32;
    let answered = move || (moment(), moment()).prop_map(|(there, back)| Fate::Answered(there, back));
    let failed = prop_oneof![moment().prop_map(Fate::AnswerLost), Just(Fate::Lost), moment().prop_map(Fate::Broken)];
    let pair = (option::of(failed), answered());
    let fates = vec(pair, 4..12).prop_map(|pairs| {
        pairs.into_iter().flat_map(|(failed, answered)| failed.into_iter().chain([answered])).collect::<Vec<_>>()
    });
    let signal = any::<bool>().prop_map(|group| Happening::Signal { group });
    let happenings = vec((time(), prop_oneof![4 => signal, 1 => Just(Happening::Generous)]), 0..6);
    (script(), fates, answered(), happenings, 5000..100_000_u64, moment()).prop_map(
        |(script, fates, afterwards, happenings, ttl, granted_after)| Script {
            ttl: Duration::from_millis(ttl),
            grace: Grace { share: if script.renewals_per_lease == 3 { 2 } else { 4 }, ..script.grace },
            on_lost: OnLost::Stop,
            granted_after,
            fates,
            afterwards,
            happenings,
            ends_on_term: None,
            ..script
        },
    )
}
