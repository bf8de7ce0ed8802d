/*!
Frames from servers of every kind: whole, cut, endless and malformed.
*/

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::property::holds;

/// Builds a frame from `parts`.
fn frame(parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    [&u32::try_from(body.len()).expect("short").to_be_bytes()[..], &body].concat()
}

fn int(number: i32) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn text(text: &str) -> Vec<u8> {
    [int(i32::try_from(text.len()).expect("short")), text.as_bytes().to_vec()].concat()
}

fn reply(id: i32, error: i32, body: &[u8]) -> Vec<u8> {
    frame(&[&int(id), &[0; 8], &int(error), body])
}

fn notification(event: i32, path: &str) -> Vec<u8> {
    reply(NOTIFICATION, 0, &[int(event), int(3), text(path)].concat())
}

/// Returns `true` if `body` is accepted as the answer to `operation`.
fn passes(operation: i32, body: &[u8]) -> bool {
    let mut unanswered = Unanswered::default();
    unanswered.note(&frame(&[&int(7), &int(operation)])).expect("few");
    unanswered.check(&reply(7, 0, body)).is_ok()
}

#[test]
fn replies_must_have_the_form_that_was_asked_for() {
    let stat = [0; STAT];
    let names = |names: &[&str]| names.iter().flat_map(|name| text(name)).collect();
    let many = |count: i32, of: &[&str]| [int(count), names(of), stat.to_vec()].concat();
    for (operation, body, expected) in [
        (operation::GET_CHILDREN, many(2, &["a", "b"]), true),
        (operation::GET_CHILDREN, many(0, &[]), true),
        (operation::GET_CHILDREN, many(i32::MAX, &["a"]), false),
        (operation::GET_CHILDREN, many(1, &["a", "b"]), false),
        (operation::GET_CHILDREN, [int(1), int(i32::MAX)].concat(), false),
        (operation::GET_CHILDREN, [int(1), text("a")].concat(), false),
        (operation::GET_CHILDREN, vec![], false),
        (operation::GET_DATA, [text("x"), stat.to_vec()].concat(), true),
        (operation::GET_DATA, [int(-1), stat.to_vec()].concat(), true),
        (operation::GET_DATA, [int(-2), stat.to_vec()].concat(), false),
        (operation::GET_DATA, stat[4..].to_vec(), false),
        (operation::GET_DATA, vec![], false),
        (operation::GET_ACL, [int(1), int(31), text("world"), text("anyone"), stat.to_vec()].concat(), true),
        (operation::GET_ACL, [int(0), stat.to_vec()].concat(), true),
        (operation::GET_ACL, [int(2), int(31), text("world"), text("anyone"), stat.to_vec()].concat(), false),
        (operation::GET_ACL, [int(i32::MAX), int(31)].concat(), false),
        (operation::GET_ACL, stat.to_vec(), false),
        (operation::EXISTS, stat.to_vec(), true),
        (operation::EXISTS, stat[1..].to_vec(), false),
        (operation::CREATE2, [text("/x"), stat.to_vec()].concat(), true),
        (operation::CREATE2, [text(""), stat.to_vec()].concat(), false),
        (operation::MULTI, [int(-1), vec![1], int(-1)].concat(), true),
        (operation::MULTI, [int(2), vec![0], int(0), int(-1), vec![1], int(-1)].concat(), true),
        (operation::MULTI, [int(15), vec![0], int(0), text("/x"), int(-1), vec![1], int(-1)].concat(), false),
        (operation::MULTI, [int(-1), vec![0], int(0)].concat(), false),
        (operation::MULTI, vec![], false),
        (operation::DELETE, vec![], true),
        (22, vec![], false),
    ] {
        assert_eq!(passes(operation, &body), expected, "{operation} {body:?}");
    }
}

/// A directory with many contenders makes a long list; no other reply may be that long.
#[test]
fn only_a_list_of_children_may_be_longer_than_a_megabyte() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
    let names: Vec<u8> = (0..20_000).flat_map(|number| text(&format!("{number:055}"))).collect();
    let children = [int(20_000), names, vec![0; STAT]].concat();
    let data = [int(1_200_000), vec![0; 1_200_000], vec![0; STAT]].concat();
    for (operation, body, expected) in [(operation::GET_CHILDREN, &children, true), (operation::GET_DATA, &data, false)]
    {
        let reply = reply(7, 0, body);
        let mut unanswered = Unanswered::default();
        unanswered.note(&frame(&[&int(7), &int(operation)])).expect("few");
        let mut stream = reply.as_slice();
        let read = runtime.block_on(read_within(&mut stream, || unanswered.longest()));
        assert_eq!(read.is_ok(), expected, "{operation}");
        // The same if both were requested.
        unanswered.note(&frame(&[&int(8), &int(operation::GET_CHILDREN)])).expect("few");
        let mut stream = reply.as_slice();
        let read = runtime.block_on(read_within(&mut stream, || unanswered.longest())).expect("a frame");
        assert_eq!(unanswered.check(&read.expect("a frame")).is_ok(), expected, "{operation}");
        assert!(unanswered.longest() > MAX_FRAME);
    }
    let announced = [0x01, 0x80, 0x00, 0x01];
    let too_long = runtime.block_on(read_within(&mut announced.as_slice(), || MAX_CHILDREN));
    assert_eq!(too_long.expect_err("too long").kind(), io::ErrorKind::InvalidData);
}

#[test]
fn only_what_was_asked_is_answered() {
    let mut unanswered = Unanswered::default();
    assert!(!unanswered.any() && unanswered.check(&reply(7, 0, &[])).is_err());
    unanswered.note(&frame(&[&int(7), &int(operation::GET_DATA)])).expect("few");
    assert!(unanswered.any());
    // An error has no body.
    assert!(unanswered.check(&reply(7, -101, &[])).is_ok());
    assert!(unanswered.check(&reply(7, -101, &[])).is_err());
    // Pings and logins have the same id each time.
    for _ in 0..2 {
        unanswered.note(&frame(&[&int(-2), &int(operation::PING)])).expect("few");
    }
    assert!(!unanswered.any());
    assert!(unanswered.check(&reply(-2, 0, &[])).is_ok() && unanswered.check(&reply(-2, 0, &[])).is_ok());
    assert!(unanswered.check(&reply(-2, 0, &[])).is_err());
    // The library sees as many answers to pings as it sent.
    unanswered.note_own_ping().expect("few");
    assert!(!unanswered.any_of_library());
    unanswered.note(&ping()).expect("few");
    assert!(unanswered.any_of_library() && !unanswered.any());
    assert_eq!(unanswered.check(&reply(-2, 0, &[])).ok(), Some(false));
    assert_eq!(unanswered.check(&reply(-2, 0, &[])).ok(), Some(true));
    assert!(!unanswered.any_of_library());
    assert!(unanswered.check(&reply(-2, 0, &[])).is_err());
    for (path, expected) in [("/x", true), ("é", false), ("", false)] {
        assert_eq!(unanswered.check(&notification(2, path)).is_ok(), expected, "{path}");
    }
    assert!(unanswered.check(&frame(&[&[0; 15]])).is_err());
    assert!(unanswered.check(&[]).is_err());
}

#[test]
fn a_welcome_has_a_session_or_none() {
    let welcomed = |timeout: i32, session: i64, password: usize, tail: &[u8]| {
        let password = [int(i32::try_from(password).expect("short")), vec![0; password]].concat();
        welcome(&frame(&[&int(0), &int(timeout), &session.to_be_bytes(), &password, tail])).ok()
    };
    assert_eq!(welcomed(4000, 9, 16, &[0]), Some(ConnectReply::Session(4000)));
    assert_eq!(welcomed(4000, 9, 16, &[]), Some(ConnectReply::Session(4000)));
    assert_eq!(welcomed(0, 0, 16, &[0]), Some(ConnectReply::Expired));
    for (timeout, password, tail) in [(0, 16, &[0][..]), (-1, 16, &[]), (1, 15, &[]), (1, 16, &[2]), (1, 16, &[0, 0])] {
        assert_eq!(welcomed(timeout, 9, password, tail), None);
    }
    assert!(welcome(&[]).is_err());
}

/// Generates an operation and a correct answer to it.
fn right_answer() -> impl Strategy<Value = (i32, Vec<u8>)> {
    let path = || "/[a-zü]{0,9}".prop_map(|path| text(&path));
    let stat = || vec(any::<u8>(), STAT);
    let data = || vec(any::<u8>(), 0..20).prop_map(|data| [int(i32::try_from(data.len()).unwrap_or(0)), data].concat());
    let both = |(one, other): (Vec<u8>, Vec<u8>)| [one, other].concat();
    let names = vec("[a-z-]{0,9}", 0..5).prop_map(|names| {
        let texts = names.iter().flat_map(|name| text(name)).collect();
        [int(i32::try_from(names.len()).unwrap_or(0)), texts].concat()
    });
    let result = prop_oneof![
        path().prop_map(|path| (operation::CREATE, path)),
        (path(), stat()).prop_map(move |parts| (operation::CREATE2, both(parts))),
        stat().prop_map(|stat| (operation::SET_DATA, stat)),
        Just((operation::DELETE, Vec::new())),
        Just((operation::ERROR, int(-101))),
    ];
    let results = vec(result.prop_map(|(operation, body)| [int(operation), vec![0], int(0), body].concat()), 0..4);
    prop_oneof![
        path().prop_map(|path| (operation::CREATE, path)),
        (path(), stat()).prop_map(move |parts| (operation::CREATE2, both(parts))),
        stat().prop_map(|stat| (operation::EXISTS, stat)),
        (data(), stat()).prop_map(move |parts| (operation::GET_DATA, both(parts))),
        (names, stat()).prop_map(move |parts| (operation::GET_CHILDREN, both(parts))),
        results.prop_map(|results| (operation::MULTI, [results.concat(), int(-1), vec![1], int(-1)].concat())),
    ]
}

#[test]
fn a_right_answer_passes_and_none_that_is_longer_or_shorter() {
    holds(2000, (right_answer(), any::<prop::sample::Index>(), 1..9_usize), |((operation, body), cut, more)| {
        prop_assert!(passes(operation, &body));
        prop_assert!(!passes(operation, &body[..cut.index(body.len())]), "cut");
        prop_assert!(!passes(operation, &[body, vec![0; more]].concat()), "longer");
        Ok(())
    });
}

#[test]
fn any_bytes_are_checked_and_nothing_is_made_of_what_they_announce() {
    let length = prop_oneof![any::<i32>(), -2..40_i32, Just(1 + 1024 * 1024)];
    let noise = vec(prop_oneof![length.prop_map(int), any::<Vec<u8>>()], 0..6).prop_map(|parts| parts.concat());
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
    holds(3000, (noise, -12..110_i32), |(noise, operation)| {
        let mut unanswered = Unanswered::default();
        unanswered.note(&noise).expect("few");
        unanswered.note(&frame(&[&int(7), &int(operation)])).expect("few");
        let (_, _) = (unanswered.check(&noise), asked_session(&noise));
        let known = unanswered.check(&reply(7, 0, &noise));
        prop_assert!(known.is_err() || unanswered.check(&reply(7, 0, &noise)).is_err(), "answered twice");
        if let Ok(ConnectReply::Session(millis)) = welcome(&noise) {
            prop_assert!(millis > 0);
        }
        let mut stream = noise.as_slice();
        let mut seen = 0;
        while let Ok(Some(frame)) = runtime.block_on(read(&mut stream)) {
            prop_assert_eq!(&frame[..], &noise[seen..seen + frame.len()]);
            seen += frame.len();
        }
        Ok(())
    });
}

#[test]
fn only_events_of_nodes_that_are_watched_pass_and_each_watch_once() {
    const NODES: [i32; 2] = [operation::GET_DATA, operation::EXISTS];
    const CHILDREN: i32 = operation::GET_CHILDREN;
    let watching = |operation: i32, watches: u8| {
        let mut unanswered = Unanswered::default();
        unanswered.note(&frame(&[&int(7), &int(operation), &text("/x"), &[watches]])).expect("few");
        unanswered
    };
    let passes = |unanswered: &mut Unanswered, event: i32, path: &str| {
        unanswered.check(&notification(event, path)).expect("a notification")
    };
    for operation in [NODES[0], NODES[1], CHILDREN] {
        // Created, deleted, data changed, children changed, and two that no server sends.
        for event in [1, 2, 3, 4, 5, -1] {
            let expected = event == 2 || if operation == CHILDREN { event == 4 } else { matches!(event, 1 | 3) };
            let mut unanswered = watching(operation, 1);
            assert!(!passes(&mut unanswered, event, "/y"), "{operation} {event}");
            assert_eq!(passes(&mut unanswered, event, "/x"), expected, "{operation} {event}");
            assert!(!expected || !passes(&mut unanswered, event, "/x"), "{operation} {event} twice");
            assert!(!passes(&mut watching(operation, 0), event, "/x"), "{operation} {event} without a watch");
        }
        // If the node does not exist, only a watch on its existence is set.
        let mut unanswered = watching(operation, 1);
        unanswered.check(&reply(7, -101, &[])).expect("an answer");
        assert_eq!(passes(&mut unanswered, 2, "/x"), operation == operation::EXISTS, "{operation}");
        for (kind, remains) in [(1, operation != CHILDREN), (2, operation == CHILDREN), (3, false)] {
            let mut unanswered = watching(operation, 1);
            unanswered.note(&frame(&[&int(8), &int(operation::REMOVE_WATCHES), &text("/x"), &int(kind)])).expect("few");
            assert_eq!(passes(&mut unanswered, 2, "/x"), remains, "{operation} without {kind}");
        }
        // Watched again before the event of the first watch arrives.
        let mut unanswered = watching(operation, 1);
        unanswered.note(&frame(&[&int(8), &int(operation), &text("/x"), &[1]])).expect("few");
        assert_eq!([(); 3].map(|()| passes(&mut unanswered, 2, "/x")), [true, true, false], "{operation} twice");
    }
    // Watches from the previous connection.
    let mut unanswered = Unanswered::default();
    let lists = [int(1), text("/data"), int(1), text("/exists"), int(2), text("/one"), text("/two")].concat();
    unanswered.note(&frame(&[&int(-8), &int(operation::SET_WATCHES), &[0; 8], &lists])).expect("few");
    for (event, path) in [(3, "/data"), (1, "/exists"), (4, "/one"), (2, "/two")] {
        assert!(passes(&mut unanswered, event, path), "{path}");
    }
}

#[test]
fn a_server_that_leaves_too_much_unanswered_is_given_up() {
    let mut unanswered = Unanswered::default();
    let request = |id: usize| frame(&[&int(i32::try_from(id).expect("few")), &int(operation::DELETE)]);
    for id in 0..MAX_UNANSWERED {
        unanswered.note(&request(id)).expect("few");
    }
    assert!(unanswered.note(&request(MAX_UNANSWERED)).is_err());
}

#[test]
fn what_dlock_itself_asks_is_what_servers_read() {
    let connect = connect(Duration::from_millis(250));
    assert_eq!((connect.len(), asked_session(&connect)), (4 + 45, Some(250)));
    let mut asked = Unanswered::default();
    asked.note(&read_configuration()).expect("few");
    asked.note(&close()).expect("few");
    let stat = [0; STAT];
    let answer = reply(1, 0, &[text("x"), stat.to_vec()].concat());
    assert_eq!(asked.check(&answer).ok(), Some(true));
    assert_eq!(asked.check(&reply(2, 0, &[])).ok(), Some(true));
    assert_eq!(data(&answer), Some(&b"x"[..]));
    for other in [reply(2, 0, &text("x")), reply(1, -101, &[]), reply(1, 0, &int(9)), Vec::new()] {
        assert_eq!(data(&other), None);
    }
    let welcome = frame(&[&int(0), &int(4000), &(-9_i64).to_be_bytes(), &text(""), &[0]]);
    assert_eq!((session(&welcome), session(&[])), (Some(-9), None));
}
