/*!
The confirmation of a break on a terminal. Without a terminal, the owner's id is the confirmation.
*/

use std::io::{self, BufRead, IsTerminal};

use crate::backend::survey::{Party, Snapshot};
use crate::command::breaking::found::{ends_within, notices_within};
use crate::holder::Holder;
use crate::key::Key;
use crate::printable::shown;
use crate::report::{self, picture};

/// Returns `true` if the user can be asked.
pub(super) fn is_possible() -> bool {
    io::stdin().is_terminal() && report::is_shown()
}

/// Shows the lock and asks whether to ask `party` to stop, or with `now` whether to take the lock away from it.
pub(super) fn confirm(seen: &Snapshot, place: &str, key: &Key, party: &Party, now: bool) -> bool {
    report::show(&format!("{}{}", picture::status(seen, place, None), question(party, now)));
    let mut answer = String::new();
    let is_read = io::stdin().lock().read_line(&mut answer).is_ok();
    is_read && agrees(answer.trim(), key.as_str(), now)
}

fn agrees(answer: &str, key: &str, now: bool) -> bool {
    if now { answer == key } else { ["y", "yes"].contains(&answer.to_lowercase().as_str()) }
}

fn question(party: &Party, now: bool) -> String {
    let (who, program) = match &party.who {
        Holder::Dlock(said) => {
            let safe = |text: &str| shown(text.as_bytes()).to_string();
            (format!("{}@{}", safe(&said.about.user), safe(&said.about.host)), safe(&said.about.program))
        }
        _ => ("its holder".to_owned(), String::new()),
    };
    if !now {
        return format!("Ask {who} to stop {program}? [y/N] ");
    }
    let frozen =
        ends_within(party).map(|frozen| format!(", or {} if it is frozen", humantime::format_duration(frozen)));
    let within = notices_within(party).map(|within| format!("at most {}", humantime::format_duration(within)));
    let within = within.unwrap_or_else(|| "perhaps never".to_owned()) + &frozen.unwrap_or_default();
    format!(
        "This takes the lock away at once. Until {who} notices ({within}), two commands can run, and only their tokens tell \
         them apart. Type the key to go on: "
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_says_what_will_happen_and_only_a_clear_answer_is_a_yes() {
        let holder = |text: &str| Party::new(Holder::read(text.as_bytes()), "");
        let dlock = holder(
            r#"{"v":1,"id":"ab","user":"deploy","host":"web1","program":"backup.sh","ttl":30000,"kill_after":5000}"#,
        );
        assert_eq!(question(&dlock, false), "Ask deploy@web1 to stop backup.sh? [y/N] ");
        let now = question(&dlock, true);
        assert!(
            now.contains("Until deploy@web1 notices (at most 10s, or 30s if it is frozen), two commands can run"),
            "{now}"
        );
        let foreign = question(&holder("redis-py"), true);
        assert!(foreign.contains("Until its holder notices (perhaps never)"), "{foreign}");
        for (answer, now, expected) in [
            ("y", false, true),
            ("Yes", false, true),
            ("", false, false),
            ("n", false, false),
            ("job", false, false),
            ("job", true, true),
            ("y", true, false),
            ("", true, false),
        ] {
            assert_eq!(agrees(answer, "job", now), expected, "{answer} {now}");
        }
    }
}
