/*!
Tests that published texts fit, are read back, and are safe to show, whoever wrote them.
*/

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::property::{holds, made_of};

/// A text that a foreign client, a newer dlock or a hostile one may have written.
fn any_mark() -> impl Strategy<Value = Vec<u8>> {
    const PIECES: &str = "\
        {|}|[|]|:|,|\"|\"v\":1,|\"v\":2,|\"id\":\"x\",|\"token\":9,|\"since\":|\"user\":\"u\"|\"pid\":\
        |\"ttl\":|\\u001b[2J|\u{202e}|\n|\0|18446744073709551615|-1|1e300|null|true";
    let long = (any::<Vec<u8>>(), 0..3000_usize).prop_map(|(bytes, times)| bytes.repeat(times));
    let published = (any_about(), any::<u32>(), any::<String>(), any::<u64>(), any::<u64>()).prop_map(
        |(about, v, id, token, since)| {
            let id = serde_json::to_string(&id).expect("text");
            format!("{{\"v\":{v},\"id\":{id},\"token\":{token},\"since\":{since},{}", about.rest()).into_bytes()
        },
    );
    prop_oneof![2 => any::<Vec<u8>>(), 2 => made_of(PIECES).prop_map(String::into_bytes), 1 => long, 4 => published]
}

/// The properties that a dlock may publish: only the names of host and user are bounded, by the system.
fn any_about() -> impl Strategy<Value = About> {
    let text =
        || prop_oneof![any::<String>(), ("[ -~]|\\PC|[\\x00-\\x1f]", 0..6000_usize).prop_map(|(c, n)| c.repeat(n))];
    let name = || vec(any::<char>(), 0..64).prop_map(String::from_iter);
    let millis = || option::of(any::<u64>());
    let rest = (any::<i32>(), millis(), millis(), option::of(text()), option::of(text()));
    (name(), name(), text(), rest).prop_map(|(host, user, program, (pid, ttl, delay, reason, job))| About {
        host,
        user,
        pid,
        program,
        ttl,
        delay,
        reason,
        job,
        boot: Some("0123abcd".to_owned()),
        ns: Some(u64::MAX),
        start: Some(u64::MAX),
        kill_after: Some(u64::MAX),
        stop: true,
        handle: true,
    })
}

#[test]
fn whatever_is_at_the_key_is_described_in_a_short_line_that_upsets_no_terminal() {
    holds(1500, (any_mark(), any::<u64>(), any::<i32>()), |(mark, now, pid)| {
        let text = String::from_utf8_lossy(&mark).into_owned();
        let holders =
            [Holder::read(&mark), Holder::Foreign(mark), Holder::Process(pid, text.clone()), Holder::InTheWay(text)];
        for line in holders.into_iter().flat_map(|holder| [holder.describe(now), holder.describe_with(now, now)]) {
            prop_assert!(!line.contains(char::is_control), "{line:?}");
            prop_assert!(!line.contains(['\u{200f}', '\u{2028}', '\u{202e}', '\u{2066}', '\u{feff}']), "{line:?}");
            prop_assert!(line.len() <= MAX_SHOWN, "{}", line.len());
        }
        Ok(())
    });
}

/// Returns the whole published text; `how` is the part about the mode and the slot.
fn text(about: &About, owner: &Owner, min_hold: Duration, [token, since]: [u64; 2], how: &str) -> String {
    format!("{}\"token\":{token},\"since\":{since},{how}{}", owner.prefix(min_hold), about.rest())
}

#[test]
fn what_anybody_publishes_fits_begins_with_its_owner_and_is_read_back() {
    let how = vec![
        ("", None, None),
        (r#""mode":"shared","#, Some("shared"), None),
        (r#""mode":"slots1000","slot":999,"#, Some("slots1000"), Some(999)),
    ];
    let given = (any_about(), any::<[u64; 2]>(), 0..2_u64, select(how));
    holds(1000, given, |(about, [token, since], hold, (how, mode, slot))| {
        let (owner, about) = (Owner::random().expect("random"), about.fitted());
        let text = text(&about, &owner, Duration::from_millis(hold), [token, since], how);
        let hold = Some(hold).filter(|&hold| hold > 0);
        let beginning = hold.map(|hold| format!(r#"{{"v":1,"hold":{hold},"id":""#));
        let beginning = beginning.unwrap_or_else(|| r#"{"v":1,"id":""#.to_owned()) + owner.as_str() + r#"","#;
        prop_assert!(text.starts_with(&beginning));
        prop_assert!(text.len() <= MAX_SHOWN && !text.bytes().any(|byte| byte < b' '));
        let id = owner.as_str().to_owned();
        let (token, since, mode) = (Some(token), Some(since), mode.map(str::to_owned));
        let published = Published { v: 1, id, token, mode, slot, since, hold, about, ..Published::default() };
        prop_assert_eq!(Holder::read(text.as_bytes()), Holder::Dlock(Box::new(published)));
        Ok(())
    });
}

fn about() -> About {
    About {
        host: "web1".to_owned(),
        user: "deploy".to_owned(),
        pid: 4711,
        program: "backup.sh".to_owned(),
        ttl: Some(30_000),
        ..About::default()
    }
}

#[test]
fn a_lease_is_what_a_command_counts_on() {
    for (ttl, delay, lease) in [
        (Some(35_000), Some(5_000), Some(30_000)),
        (Some(30_000), None, Some(30_000)),
        (Some(1), Some(2), Some(0)),
        (None, Some(5_000), None),
        (None, None, None),
    ] {
        let published = Published { about: About { ttl, delay, ..about() }, ..Published::default() };
        assert_eq!(published.lease(), lease.map(Duration::from_millis), "{ttl:?} {delay:?}");
    }
}

#[test]
fn what_is_published_is_read_back() {
    let owner = Owner::random().expect("random");
    let text = text(&about(), &owner, Duration::ZERO, [17, 1_000], "");
    assert!(text.starts_with(&owner.prefix(Duration::ZERO)));
    let holder = Holder::read(text.as_bytes());
    assert_eq!(holder.id(), Some(owner.as_str()));
    let line = holder.describe(124_000);
    assert_eq!(line, "held by deploy@web1, pid 4711 (backup.sh), since 1970-01-01T00:00:01Z (2m 3s)");
    let Holder::Dlock(published) = holder else { panic!("a dlock") };
    let kept = Holder::Dlock(Box::new(Published { hold: Some(60_000), ..(*published).clone() }));
    let until = "since 1970-01-01T00:00:01Z (30s), at least until 1970-01-01T00:01:01Z (--min-hold)";
    assert!(kept.describe(31_000).ends_with(until));
    assert!(kept.describe(61_000).ends_with("since 1970-01-01T00:00:01Z (1m)"));
    let finished = Published { done: true, until: Some(60_000), ..*published };
    let line = Holder::Dlock(Box::new(finished)).describe(30_000);
    let until = "1970-01-01T00:01:00Z";
    assert_eq!(
        line,
        format!("held by deploy@web1, pid 4711 (backup.sh), finished; kept until {until} (another 30s, --min-hold)")
    );
}

#[test]
fn how_a_lock_is_held_and_by_how_many() {
    let n = |slots: u32| Mode::read(&format!("slots{slots}"));
    for (mode, beside, expected) in [
        (Some(Mode::Exclusive), 0, "held by "),
        // A newer dlock may have modes that this one does not know.
        (None, 7, "held by "),
        (Some(Mode::Shared), 0, "held shared by "),
        (Some(Mode::Shared), 1, "held by 2 readers, among them "),
        (n(1), 0, "its only slot is taken by "),
        (n(5), 0, "1 of 5 slots is taken by "),
        (n(5), 3, "4 of 5 slots are taken, one by "),
        (n(5), 4, "all 5 slots are taken, one by "),
        (n(5), u64::MAX, "all 5 slots are taken, one by "),
    ] {
        assert_eq!(held(mode, beside), expected, "{mode:?} {beside}");
    }
    let owner = Owner::random().expect("random");
    let text = text(&about(), &owner, Duration::ZERO, [17, 1_000], r#""mode":"slots5","slot":3,"#);
    let holder = Holder::read(text.as_bytes());
    let Holder::Dlock(published) = &holder else { panic!("a dlock") };
    assert_eq!((published.mode(), published.slot), (n(5), Some(3)));
    let who = "deploy@web1, pid 4711 (backup.sh), since 1970-01-01T00:00:01Z (2m 3s)";
    assert_eq!(holder.describe_with(4, 124_000), format!("all 5 slots are taken, one by {who}"));
    assert_eq!(holder.describe(124_000), format!("held by {who}"));
    let newer = Holder::read(br#"{"v":1,"id":"x","mode":"intent"}"#);
    let Holder::Dlock(newer) = newer else { panic!("a dlock") };
    assert_eq!(newer.mode(), None);
}

#[test]
fn a_newer_dlock_may_say_more_and_a_liar_cannot_upset_the_terminal() {
    let newer = br#"{"v":2,"id":"x","shiny":[1],"user":"a\u001b[2J","host":"h","since":99999999999999999}"#;
    assert_eq!(Holder::read(newer).describe(0), "held by a\\u{1b}[2J@h, pid 0");
    assert_eq!(Holder::read(b"\xff\n").describe(0), "held by another program: \\xff\\n");
    assert_eq!(Holder::read(b"{\"v\":1}").id(), None);
}

#[test]
fn a_long_mark_makes_no_longer_line_than_any_text() {
    let mark = "x".repeat(2 * MAX_SHOWN);
    for holder in [Holder::Foreign(mark.clone().into_bytes()), Holder::InTheWay(mark.clone()), Holder::Process(1, mark)]
    {
        assert!(holder.describe(0).len() <= MAX_SHOWN);
    }
}
