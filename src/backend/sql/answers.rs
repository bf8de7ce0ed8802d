/*!
Parses the answers of a server: rows of texts, each of which begins with a word for its kind. An answer in a form that
the statements never give is malformed; above all it is not a grant.
*/

use std::str::FromStr;

use crate::backend::contract::contender::{Released, TOKEN_LIMIT};
use crate::backend::sql::crowd::QueueView;
use crate::backend::sql::published::{Columns, Member};
use crate::holder::done::Done;
use crate::lock::admission::Mode;

/// A row as the server sent it.
pub(crate) type Row = Vec<Option<String>>;

/// The error for a malformed answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The state of a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    /// `true` if the lock is ours.
    pub mine: bool,
    /// `true` if the lock is free.
    pub free: bool,
    /// The columns of its row.
    pub columns: Columns,
    /// Milliseconds until a lease ends: the lock's, or the earliest of holders in our mode; `None` if it never ends.
    pub left: Option<i64>,
    /// The server's time in milliseconds since 1970.
    pub now: u64,
    /// The number of the process that answered, if servers have such numbers.
    pub process: Option<i32>,
    /// A token that is too large to be used.
    pub damaged: Option<i64>,
    /// A different number of slots that others use.
    pub other_slots: Option<u32>,
    /// The record of a success in the period, if there is one.
    pub done: Option<Box<Done>>,
    /// The name of its row, which may differ from the requested one if the database takes both as equal.
    pub name: String,
    /// The text of the request to stop that was made to its holder.
    pub ask: Option<String>,
}

/// The nearest waiters before us, by their owners' ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ahead {
    /// The nearest of all of them.
    pub nearest: Option<String>,
    /// The nearest one of another mode.
    pub other: Option<String>,
}

/// Reads the lock in an answer; `Ok(None)` if it has no row yet. Fails if the answer is malformed.
pub(crate) fn look(rows: &[Row]) -> Result<Option<Look>, Malformed> {
    let Some(row) = of(rows, "look") else { return Ok(None) };
    let [
        _,
        mine,
        free,
        locked_by,
        token,
        about,
        left,
        since,
        until,
        now,
        process,
        damaged,
        owner,
        slot,
        done,
        beside,
        other,
        done_by,
        name,
        ask,
    ] = row[..]
    else {
        return Err(Malformed);
    };
    Ok(Some(Look {
        mine: yes(mine)?,
        free: yes(free)?,
        columns: Columns {
            locked_by: locked_by.ok_or(Malformed)?.to_owned(),
            token: moment(token)?,
            since: moment(since)?,
            until: moment(until)?,
            about: about.map(str::to_owned),
            member: owner.map(|owner| member(owner, slot, done, beside)).transpose()?,
        },
        left: number(left)?,
        now: number(now)?.ok_or(Malformed)?,
        process: number(process)?,
        damaged: number(damaged)?,
        other_slots: other.map(|other| Mode::read(other).and_then(Mode::slots).ok_or(Malformed)).transpose()?,
        done: done_by.map(|text| Done::read(text.as_bytes()).map(Box::new).ok_or(Malformed)).transpose()?,
        name: name.ok_or(Malformed)?.to_owned(),
        ask: ask.map(str::to_owned),
    }))
}

fn member(owner: &str, slot: Option<&str>, done: Option<&str>, beside: Option<&str>) -> Result<Member, Malformed> {
    let (slot, done) = (number(slot)?, yes(done)?);
    Ok(Member { owner: owner.to_owned(), slot, done, beside: number(beside)?.unwrap_or_default() })
}

/// Returns the token of a lock that is ours. Fails if it is missing or out of range.
pub(crate) fn token(look: &Look) -> Result<u64, Malformed> {
    look.columns.token.filter(|token| (1..TOKEN_LIMIT).contains(token)).ok_or(Malformed)
}

/// Returns our place in the queue; `None` if the answer has none, or is malformed.
pub(crate) fn queue_view(rows: &[Row]) -> Option<QueueView> {
    let [_, position, is_head, used, most, ..] = of(rows, "queue")?[..] else { return None };
    let count = |count| number(count).ok().flatten();
    // MySQL has another statement for this number if the user has no limit of its own.
    let used = match of(rows, "Threads_connected").as_deref() {
        Some([_, connected]) if used.is_none() => *connected,
        _ => used,
    };
    Some(QueueView {
        position: count(position)?,
        is_head: is_head == Some("t"),
        used: count(used)?,
        most: count(most)?,
    })
}

/// Returns the waiters before us, if the answer has them.
pub(crate) fn ahead(rows: &[Row]) -> Ahead {
    let named = |name: Option<&str>| name.filter(|id| is_id(id)).map(str::to_owned);
    match of(rows, "queue").as_deref() {
        Some([_, _, _, _, _, nearest, other]) => Ahead { nearest: named(*nearest), other: named(*other) },
        _ => Ahead::default(),
    }
}

/// Returns `true` if the event that we waited for has happened.
pub(crate) fn is_gone(rows: &[Row]) -> bool {
    matches!(of(rows, "gone").as_deref(), Some([_, Some("1")]))
}

/// Returns `true` if a text is the id of an owner, which may be put into a statement as it is.
fn is_id(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Reads the outcome of a release.
pub(crate) fn released(rows: &[Row]) -> Released {
    match () {
        () if of(rows, "kept").is_some() => Released::Kept,
        () if of(rows, "released").is_some() => Released::Freed,
        () => Released::NotMine,
    }
}

/// Returns the row that begins with `word`.
pub(crate) fn of<'a>(rows: &'a [Row], word: &str) -> Option<Vec<Option<&'a str>>> {
    let row = rows.iter().find(|row| row.first().is_some_and(|first| first.as_deref() == Some(word)))?;
    Some(row.iter().map(Option::as_deref).collect())
}

fn yes(field: Option<&str>) -> Result<bool, Malformed> {
    match field {
        Some("t") => Ok(true),
        Some("f") => Ok(false),
        _ => Err(Malformed),
    }
}

/// Parses a number that may be missing.
fn number<N: FromStr>(field: Option<&str>) -> Result<Option<N>, Malformed> {
    field.map(str::parse::<N>).transpose().map_err(|_| Malformed)
}

/// Parses a time; `None` if it is missing or before 1970.
fn moment(field: Option<&str>) -> Result<Option<u64>, Malformed> {
    Ok(number::<i64>(field)?.and_then(|number| u64::try_from(number).ok()))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::property::{holds, one_of};

    /// Words that have a meaning in some answer.
    const WORDS: &str = "look|queue|released|kept|Threads_connected|t|f|web1|dlock:0123456789abcdef0123456789abcdef|17|-1|0|\
        9007199254740991|9007199254740992|9223372036854775808|p|u|off|lock_until timestamp,locked_at x|\u{1b}[2J|";

    fn rows() -> impl Strategy<Value = Vec<Row>> {
        let field = || proptest::option::weighted(0.9, one_of(WORDS).prop_map(str::to_owned));
        let row = |word: &'static str, fields: usize| {
            vec(field(), fields).prop_map(move |rest| [vec![Some(word.to_owned())], rest].concat())
        };
        let any = vec(field(), 0..21);
        vec(prop_oneof![4 => row("look", 19), 1 => row("queue", 4), 1 => row("queue", 6), 1 => any], 0..3)
    }

    fn fields(row: &[&str]) -> Row {
        row.iter().map(|field| (*field != "NULL").then(|| (*field).to_owned())).collect()
    }

    #[test]
    fn only_an_answer_of_the_right_form_is_a_grant() {
        holds(4000, rows(), |rows| {
            if let Ok(Some(look)) = look(&rows) {
                if look.mine && token(&look).is_ok() {
                    let row = of(&rows, "look").expect("the row");
                    prop_assert!(row.len() == 20 && row[1] == Some("t"), "{row:?}");
                    let number: u64 = row[4].expect("a token").parse().expect("a number");
                    prop_assert!((1..1 << 53).contains(&number));
                }
                prop_assert!(!look.columns.holder().describe(look.now).contains(char::is_control));
            }
            let (_, _) = (queue_view(&rows), ahead(&rows));
            let is_said = |word: &str| rows.iter().any(|row| row.first() == Some(&Some(word.to_owned())));
            prop_assert_eq!(released(&rows) == Released::NotMine, !is_said("kept") && !is_said("released"));
            Ok(())
        });
    }

    #[test]
    fn a_lock_is_read_as_the_statements_have_it() {
        let row = fields(&[
            "look", "f", "f", "web1", "NULL", "NULL", "900", "1000", "2000", "1100", "77", "NULL", "NULL", "NULL",
            "NULL", "NULL", "NULL", "NULL", "job", "ASK",
        ]);
        let looked = look(std::slice::from_ref(&row)).expect("it makes sense").expect("a row");
        assert_eq!((looked.left, looked.now, looked.process, looked.damaged), (Some(900), 1100, Some(77), None));
        assert_eq!((looked.name.as_str(), looked.ask.as_deref()), ("job", Some("ASK")));
        assert_eq!(looked.columns.since, Some(1000));
        assert_eq!(look(&[]), Ok(None));
        // A lock that never ends, and a row with a field too few.
        let endless = fields(&[
            "look", "f", "f", "x", "NULL", "NULL", "NULL", "1000", "NULL", "1100", "77", "NULL", "NULL", "NULL",
            "NULL", "NULL", "NULL", "NULL", "job", "ASK",
        ]);
        assert_eq!(look(&[endless]).expect("it makes sense").expect("a row").left, None);
        assert_eq!(look(&[row[..19].to_vec()]), Err(Malformed));
    }

    #[test]
    fn a_lock_that_several_hold_is_read_with_one_of_them() {
        let with = |own: [&str; 5]| {
            let own = [&own[..], &["NULL", "job", "NULL"]].concat();
            let row = ["look", "f", "f", "dlock:slots5", "9", "NULL", "900", "1000", "2000", "1100", "77", "NULL"];
            look(&[fields(&[&row[..], &own].concat())])
        };
        let looked = with(["x", "3", "f", "2", "NULL"]).expect("it makes sense").expect("a row");
        let member = Member { owner: "x".to_owned(), slot: Some(3), done: false, beside: 2 };
        assert_eq!((looked.columns.member, looked.other_slots), (Some(member), None));
        let looked = with(["x", "3", "f", "2", "slots5"]).expect("it makes sense").expect("a row");
        assert_eq!(looked.other_slots, Some(5));
        assert_eq!(with(["x", "3", "f", "2", "shared"]), Err(Malformed));
        assert_eq!(with(["x", "-3", "f", "2", "NULL"]), Err(Malformed));
        assert_eq!(with(["x", "3", "NULL", "2", "NULL"]), Err(Malformed));
    }

    #[test]
    fn places_are_read_as_the_statements_have_them() {
        let row = fields(&["queue", "3", "f", "60", "100"]);
        assert_eq!(queue_view(&[row]), Some(QueueView { position: 3, is_head: false, used: 60, most: 100 }));
        let id = "0123456789abcdef0123456789abcdef";
        let row = fields(&["queue", "3", "t", "NULL", "100", id, "x"]);
        let connected = fields(&["Threads_connected", "7"]);
        let rows = [row, connected];
        assert_eq!(queue_view(&rows), Some(QueueView { position: 3, is_head: true, used: 7, most: 100 }));
        assert_eq!(ahead(&rows), Ahead { nearest: Some(id.to_owned()), other: None });
        let gone = |field: &str| is_gone(&[fields(&["gone", field])]);
        assert_eq!((gone("1"), gone("0"), gone("NULL"), is_gone(&[])), (true, false, false, false));
    }

    #[test]
    fn a_release_is_told_from_a_kept_lock_and_from_a_foreign_one() {
        let (freed, kept) = (fields(&["released"]), fields(&["kept"]));
        assert_eq!(released(std::slice::from_ref(&freed)), Released::Freed);
        assert_eq!(released(&[freed, kept.clone()]), Released::Kept);
        assert_eq!(released(&[kept]), Released::Kept);
        assert_eq!(released(&[fields(&[""])]), Released::NotMine);
    }
}
