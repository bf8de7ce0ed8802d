/*!
Tests of several locks with a small table in memory: the requests, their order and their outcome.
*/

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::*;
use crate::backend::contract::contender::Busy;
use crate::backend::error::ErrorKind;
use crate::clock::pause;
use crate::holder::{Holder, Published};
use crate::lease::taking::{Limits, give_back, take};
use crate::lease::timing::Delay;
use crate::lease::waiting::{Failed, Refused, Trouble, Wait};

const MS: Duration = Duration::from_millis(1);
const GRACE: Grace = Grace { asked: None, share: 2 };
const NO_DELAY: Delay = Delay { length: Duration::ZERO, share: 0 };
const LIMITS: Limits = Limits { connect: Duration::from_secs(5), grace: GRACE, delay: NO_DELAY };
/// Longer than any of these tests takes.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The holder of a lock that none of the contenders holds.
const OTHER: &str = "other";
/// The holder of a lock that an outer run of these contenders holds.
const OUTER: &str = "outer";

/// The holders of the locks, and all requests.
#[derive(Default)]
struct Table {
    holders: BTreeMap<String, String>,
    /// The leases that are granted; all others are unlimited.
    leases: BTreeMap<String, Lease>,
    log: Vec<String>,
    token: u64,
}

type Shared = Rc<RefCell<Table>>;

/// A contender for one lock of the table.
struct Member {
    claim: Claim,
    table: Shared,
    kept_as: Option<String>,
}

impl Member {
    fn name(&self) -> String {
        self.claim.key.as_str().to_owned()
    }

    fn log(&self, what: &str) {
        self.table.borrow_mut().log.push(format!("{what} {}", self.name()));
    }

    fn holder(&self) -> Option<String> {
        self.table.borrow().holders.get(&self.name()).cloned()
    }

    fn is_ours(&self) -> bool {
        self.holder().as_deref() == Some(self.claim.owner.as_str())
    }

    fn lease(&self) -> Lease {
        let granted = self.table.borrow().leases.get(&self.name()).copied();
        granted.unwrap_or(Lease::Unlimited { check: 5 * MS })
    }
}

#[async_trait::async_trait(?Send)]
impl Contender for Member {
    fn claim(&self) -> &Claim {
        &self.claim
    }

    fn ignore_outer(&mut self) {}

    fn kept_as(&self) -> Option<&str> {
        self.kept_as.as_deref()
    }

    async fn connect(&mut self) -> Result<(), Error> {
        Ok(())
    }

    async fn attempt(&mut self, _: Queue) -> Result<Attempt, Error> {
        self.log("ask for");
        match self.holder().as_deref() {
            Some(OUTER) => Ok(Attempt::Outer(Box::new(Published { id: OUTER.to_owned(), ..Published::default() }))),
            Some(holder) if holder != self.claim.owner.as_str() => {
                Ok(Attempt::Busy(Busy { holder: Holder::Unknown, beside: 0, position: None, now: 0 }))
            }
            _ => {
                let mut table = self.table.borrow_mut();
                table.token += 1;
                let token = table.token;
                table.holders.insert(self.name(), self.claim.owner.as_str().to_owned());
                drop(table);
                Ok(Attempt::Held(Grant { token, slot: None, lease: self.lease() }))
            }
        }
    }

    async fn changed(&mut self) -> Result<(), Error> {
        while self.holder().is_some() {
            pause(MS).await;
        }
        Ok(())
    }

    async fn renew(&mut self) -> Result<Renewal, Error> {
        self.log("renew");
        if !self.is_ours() {
            return Ok(Renewal::NotMine("it was deleted".to_owned()));
        }
        Ok(Renewal::Extended(match self.lease() {
            Lease::Until { ttl, .. } => Lease::until(Instant::now(), ttl),
            unlimited @ Lease::Unlimited { .. } => unlimited,
        }))
    }

    async fn release(&mut self, _: Used) -> Result<Released, Error> {
        self.log("release");
        if !self.is_ours() {
            return Ok(Released::NotMine);
        }
        self.table.borrow_mut().holders.remove(&self.name());
        Ok(Released::Freed)
    }
}

/// Makes a contender for the locks of these names, as a user has typed them, and their table.
fn several(names: &[&str]) -> (Several, Shared) {
    several_kept_as(names, |_| None)
}

/// Makes a contender like [`several`], at a service that may keep some of these locks by another name.
fn several_kept_as(names: &[&str], kept_as: fn(&str) -> Option<String>) -> (Several, Shared) {
    let table = Shared::default();
    let member = |name: &&str| {
        let claim = Claim { ttl: TIMEOUT, ..Claim::example("", name).expect("a name") };
        Box::new(Member { claim, table: table.clone(), kept_as: kept_as(name) }) as Box<dyn Contender>
    };
    (Several::new(names.iter().map(member).collect(), GRACE, Duration::ZERO), table)
}

/// Returns the requests to the table, without renewals.
fn log(table: &Shared) -> Vec<String> {
    table.borrow().log.iter().filter(|line| !line.starts_with("renew")).cloned().collect()
}

fn give(table: &Shared, name: &str, holder: &str) {
    table.borrow_mut().holders.insert(name.to_owned(), holder.to_owned());
}

fn remove(table: &Shared, name: &str) {
    table.borrow_mut().holders.remove(name);
}

/// Runs `work` to its end, which must come.
fn play<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let limit = Instant::now() + TIMEOUT;
    runtime.block_on(async { before(limit, work).await.unwrap_or_else(|_| panic!("it does not end")) })
}

async fn taken(several: &mut Several, wait: Wait) -> Result<Grant, Refused> {
    take(several, wait, LIMITS, |_, _| {}).await
}

/// Waits until the table has got the request `line` this many times.
async fn asked(table: &Shared, line: &str, times: usize) {
    while table.borrow().log.iter().filter(|seen| *seen == line).count() < times {
        pause(MS).await;
    }
}

#[test]
fn locks_are_taken_in_the_order_of_their_encoded_names_and_given_back_in_reverse() {
    // A slash is encoded, and its % comes before the dot.
    let (mut several, table) = several(&["b", "a.x", "a/x"]);
    let grant = play(taken(&mut several, Wait::No)).expect("granted");
    assert_eq!(log(&table), ["ask for a/x", "ask for a.x", "ask for b"]);
    assert_eq!((several.tokens(), grant.token), (vec![3, 2, 1], 3), "as the user has named them");
    table.borrow_mut().log.clear();
    assert_eq!(play(give_back(&mut several, Used::Yes, TIMEOUT)), Ok(Released::Freed));
    assert_eq!(log(&table), ["release b", "release a.x", "release a/x"]);
    assert_eq!(play(several.release(Used::Yes)).ok(), Some(Released::NotMine), "a second time");
}

#[test]
fn without_a_wait_all_are_held_or_none() {
    let (mut several, table) = several(&["a", "b", "c"]);
    give(&table, "b", OTHER);
    let refused = play(taken(&mut several, Wait::No)).expect_err("b is held");
    assert!(matches!(refused, Refused::Busy(_)), "{refused:?}");
    assert_eq!(several.claim().key.as_str(), "b", "the one that is missing");
    assert_eq!(log(&table), ["ask for a", "ask for b", "release a"]);
    assert_eq!(table.borrow().holders.len(), 1);
    remove(&table, "b");
    assert!(play(taken(&mut several, Wait::No)).is_ok());
}

#[test]
fn two_keys_that_are_one_lock_are_refused_by_their_names() {
    let (mut several, table) = several_kept_as(&["b", "a", "A"], |name| Some(name.to_uppercase()));
    let refused = play(taken(&mut several, Wait::Forever)).expect_err("it would wait for itself");
    let Refused::Failed(Failed { kind, trouble: Trouble::Said(why) }) = refused else { panic!("{refused:?}") };
    assert_eq!((kind, why.as_str()), (ErrorKind::Misused, "'A' and 'a' are one lock there: give one of these keys"));
    assert_eq!(log(&table), ["ask for A", "ask for a", "release a", "release A"]);
    let (mut several, _) = several_kept_as(&["a", "b"], |name| Some(name.to_uppercase()));
    assert!(play(taken(&mut several, Wait::No)).is_ok());
}

#[test]
fn one_that_is_lost_while_another_is_waited_for_has_all_of_them_begin_again() {
    let (mut several, table) = several(&["a", "b", "c"]);
    give(&table, "c", OTHER);
    let mut names = Vec::new();
    play(async {
        let taking = take(&mut several, Wait::Until(Instant::now() + TIMEOUT), LIMITS, |key, _| {
            names.push(key.as_str().to_owned());
        });
        let others = async {
            asked(&table, "ask for c", 1).await;
            give(&table, "a", OTHER);
            // It is not waited for while b is held: that would be out of order.
            asked(&table, "ask for a", 2).await;
            assert!(!table.borrow().holders.contains_key("b"));
            remove(&table, "a");
            asked(&table, "ask for c", 2).await;
            remove(&table, "c");
        };
        let (granted, ()) = futures_util::future::join(taking, others).await;
        assert!(granted.is_ok(), "{granted:?}");
    });
    names.dedup();
    assert_eq!(names, ["c", "a", "c"], "what was waited for");
    assert_eq!(several.tokens(), [3, 4, 5]);
    let owners: Vec<String> = table.borrow().holders.values().cloned().collect();
    assert!(owners.len() == 3 && !owners.contains(&OTHER.to_owned()), "{owners:?}");
}

#[test]
fn a_wait_that_runs_out_leaves_nothing() {
    let (mut several, table) = several(&["a", "b"]);
    give(&table, "b", OTHER);
    let refused = play(taken(&mut several, Wait::Until(Instant::now() + 50 * MS))).expect_err("b is held");
    assert!(matches!(refused, Refused::Busy(_)), "{refused:?}");
    assert_eq!(several.claim().key.as_str(), "b");
    assert_eq!(table.borrow().holders.len(), 1);
}

#[test]
fn what_a_run_around_holds_is_passed_over_and_has_its_token() {
    let (mut several, table) = several(&["c", "b", "a"]);
    give(&table, "b", OUTER);
    let refused = play(taken(&mut several, Wait::Forever)).expect_err("b is held by an outer run");
    assert!(matches!(refused, Refused::Outer(_)), "{refused:?}");
    assert_eq!(several.claim().key.as_str(), "b");
    several.skip_held_by_outer(77);
    assert!(play(taken(&mut several, Wait::Forever)).is_ok());
    assert_eq!(several.tokens(), [3, 77, 2]);
    assert_eq!(play(give_back(&mut several, Used::Yes, TIMEOUT)), Ok(Released::Freed));
    assert_eq!(table.borrow().holders.keys().collect::<Vec<_>>(), ["b"], "it is not given back");
    assert!(!log(&table).contains(&"release b".to_owned()));
}

#[test]
fn the_first_loss_is_the_loss_of_all_and_says_which_it_is() {
    let (mut several, table) = several(&["a", "b", "c"]);
    play(async {
        assert!(taken(&mut several, Wait::No).await.is_ok());
        assert!(matches!(several.renew().await, Ok(Renewal::Extended(_))));
        give(&table, "b", OTHER);
        assert_eq!(several.renew().await.ok(), Some(Renewal::NotMine("it was deleted ('b')".to_owned())));
        assert_eq!(give_back(&mut several, Used::Yes, TIMEOUT).await, Ok(Released::NotMine));
    });
    assert_eq!(table.borrow().holders.values().collect::<Vec<_>>(), [OTHER], "the others are free");
}

#[test]
fn the_lease_that_ends_first_counts_and_one_that_has_waited_too_long_is_renewed_before_the_command() {
    let (mut several, table) = several(&["a", "b"]);
    let sent = Instant::now();
    let (long, short) = (Lease::until(sent, 60_000 * MS), Lease::until(sent, 10_000 * MS));
    table.borrow_mut().leases.extend([("a".to_owned(), long), ("b".to_owned(), short)]);
    let grant = play(taken(&mut several, Wait::No)).expect("granted");
    assert_eq!(grant.lease, short);
    assert!(!table.borrow().log.iter().any(|line| line.starts_with("renew")), "{:?}", table.borrow().log);

    // Not due yet, but too little of it is left for a command, by its grace or by the delay that is not for it.
    let grace = Grace { asked: Some(5_000 * MS), share: 2 };
    for (grace, delay) in [(grace, Duration::ZERO), (GRACE, 6_000 * MS)] {
        let (mut several, table) = self::several(&["a", "b"]);
        several.useful = Useful { grace, delay };
        let old = Lease::Until { sent: Instant::now() - 3_000 * MS, ttl: 10_000 * MS, renew_every: 9_000 * MS };
        table.borrow_mut().leases.extend([("a".to_owned(), old), ("b".to_owned(), long)]);
        let limits = Limits { grace, delay: Delay { length: delay, share: 0 }, ..LIMITS };
        let grant = play(take(&mut several, Wait::No, limits, |_, _| {})).expect("granted");
        let Lease::Until { sent: renewed, .. } = grant.lease else { panic!("{grant:?}") };
        assert!(renewed >= sent, "{grant:?}");
        assert_eq!(table.borrow().log, ["ask for a", "ask for b", "renew a"]);
    }
}
